"""Flink and Spark as clusters of processes: the bytes of the direct runner, whatever is killed on the way."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.engines.conftest import Command, contents

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(3600)]
Start = Callable[..., Command]


@pytest.fixture(params=["flink", "spark"])
def cluster(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_the_bytes_are_those_of_the_direct_runner(
    cluster: Any, preprocess: Start, wanted: dict[str, bytes]
) -> None:
    command = preprocess(*cluster.options())
    command.succeed()
    assert contents(command.output) == wanted


@pytest.mark.parametrize("folder", ["runs", "shards"])
def test_a_lost_machine_changes_no_byte(
    cluster: Any, folder: str, preprocess: Start, wanted: dict[str, bytes]
) -> None:
    command = preprocess(*cluster.options())
    command.await_files(folder, 2)
    cluster.lose(1)
    cluster.replace(1)
    command.succeed()
    assert contents(command.output) == wanted


@pytest.mark.parametrize("folder", ["runs", "shards"])
def test_the_command_is_killed_and_given_again(
    cluster: Any, folder: str, preprocess: Start, wanted: dict[str, bytes]
) -> None:
    # The engine does not notice, and continues.
    killed = begin_and_kill(preprocess, cluster.options(), folder)
    go_on(preprocess, cluster.options(), killed, wanted)


@pytest.mark.parametrize(("first", "folder"), [("direct", "runs"), ("engine", "runs"), ("engine", "shards")])
def test_one_engine_goes_on_with_what_another_began(
    cluster: Any, first: str, folder: str, preprocess: Start, wanted: dict[str, bytes]
) -> None:
    direct, engine = ("--workers", "2"), cluster.options()
    began, ended = (direct, engine) if first == "direct" else (engine, direct)
    go_on(preprocess, ended, begin_and_kill(preprocess, began, folder), wanted)


def begin_and_kill(preprocess: Start, options: Sequence[str], folder: str) -> dict[Path, int]:
    """Kill the command once two sidecars are in `folder`; the files that are committed then, with their times."""
    command = preprocess(*options)
    command.await_files(folder, 2)
    command.kill()
    return times(command)


def go_on(
    preprocess: Start, options: Sequence[str], committed: Mapping[Path, int], wanted: dict[str, bytes]
) -> None:
    """Give the command again: it takes what is committed, and writes the bytes that are wanted."""
    command = preprocess(*options)
    command.await_files("shards", 1)
    assert committed.items() <= times(command).items()
    command.succeed()
    assert contents(command.output) == wanted


def times(command: Command) -> dict[Path, int]:
    """When each committed run and shard was written."""
    work = command.output / "_work"
    files = [*work.glob("runs/*.json"), *work.glob("shards/*/*.json")]
    return {path: path.stat().st_mtime_ns for path in files}
