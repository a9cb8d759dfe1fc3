"""Prism, Beam's engine in Go, with the steps in the command."""

from collections.abc import Callable

import pytest

from tests.engines.conftest import Command, contents, fetched
from tools.engines import fetch

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("killed_at", [None, "runs", "shards"])
def test_the_bytes_are_those_of_the_direct_runner(
    killed_at: str | None, preprocess: Callable[..., Command], wanted: dict[str, bytes]
) -> None:
    options = ["--runner", "prism", "--", f"--prism_location={fetched(fetch.prism())}"]
    command = preprocess(*options)
    if killed_at is not None:
        command.await_files(killed_at, 2)
        command.kill()
        command = preprocess(*options)
    command.succeed()
    assert contents(command.output) == wanted
