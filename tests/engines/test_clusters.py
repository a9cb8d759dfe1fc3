"""Flink and Spark as clusters of processes: the bytes of the direct runner, whatever is killed on the way."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engines.conftest import Command, contents

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(3600)]
Start = Callable[..., Command]


@pytest.fixture(params=["flink", "spark"])
def cluster(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_the_bytes_are_those_of_the_direct_runner(cluster: Any, preprocess: Start, wanted: dict[str, bytes]) -> None:
    command = preprocess(*cluster.options())
    command.succeed()
    assert contents(command.output) == wanted


@pytest.mark.parametrize("folder", ["runs", "shards"])
def test_a_lost_machine_changes_no_byte(cluster: Any, folder: str, preprocess: Start, wanted: dict[str, bytes]) -> None:
    command = preprocess(*cluster.options())
    command.await_files(folder, 2)
    cluster.lose(1)
    cluster.replace(1)
    command.succeed()
    assert contents(command.output) == wanted


def test_the_command_is_killed_and_given_again(cluster: Any, preprocess: Start, wanted: dict[str, bytes]) -> None:
    command = preprocess(*cluster.options())
    command.await_files("runs", 2)
    command.kill()  # the engine does not know, and goes on
    again = preprocess(*cluster.options())
    again.succeed()
    assert contents(again.output) == wanted


def test_engines_go_on_with_what_another_began(cluster: Any, preprocess: Start, wanted: dict[str, bytes]) -> None:
    began = preprocess("--workers", "2")
    began.await_files("runs", 3)
    began.kill()
    runs = {path.name: path.stat().st_mtime_ns for path in (began.output / "_work" / "runs").glob("*.json")}
    command = preprocess(*cluster.options())
    command.await_files("shards", 1)
    kept = {path.name: path.stat().st_mtime_ns for path in (began.output / "_work" / "runs").glob("*.json")}
    assert runs.items() <= kept.items()
    command.kill()
    direct = preprocess("--workers", "2")
    direct.succeed()
    assert contents(direct.output) == wanted
