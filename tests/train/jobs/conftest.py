"""A trained run to begin with, what a run's files say, and training commands as processes that can be killed."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_json_lines
from tests.train.fork_server import Forked, fork
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain

CLOCK = ("seconds", "data_wait", "utilisation")
COMMAND = """
import json, sys
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain

mapping, data, run, options = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
pretrain(build(PretrainRecipe, mapping, source="test"), data, run, **options)
"""
History = Callable[[Path], list[dict[str, Any]]]
KillAt = Callable[..., int]


@pytest.fixture(scope="session")
def first_run(
    corpus: str, make_recipe: Callable[..., PretrainRecipe], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """A finished run of eight steps."""
    folder = str(tmp_path_factory.mktemp("first") / "run")
    pretrain(make_recipe(), corpus, folder)
    return folder


@pytest.fixture(scope="session")
def history() -> History:
    """The lines of a run's metrics.jsonl without what the clock says."""

    def read(run: Path) -> list[dict[str, Any]]:
        lines = read_json_lines(run / "metrics.jsonl")
        return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]

    return read


@pytest.fixture
def kill_at() -> Iterator[KillAt]:
    """Trains in a child process, which it kills with SIGKILL when metrics.jsonl has this number of lines."""
    started: list[Forked] = []

    def kill(lines: int, recipe: PretrainRecipe, corpus: str, run: Path, **options: Any) -> int:
        arguments = [json.dumps(to_mapping(recipe)), corpus, str(run), json.dumps(options)]
        process = fork(COMMAND, *arguments)
        started.append(process)
        until = time.monotonic() + 200  # a busy machine takes a minute to start a process
        path = run / "metrics.jsonl"
        while not path.exists() or path.read_bytes().count(b"\n") < lines:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.002)
        process.kill()
        process.wait()
        return len(read_json_lines(path))

    yield kill
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
