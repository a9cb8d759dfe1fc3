"""The S3 API on this machine, training commands as processes, and what their metrics say."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, read_json_lines
from tests.train.fork_server import Forked, fork
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe

CLOCK = ("seconds", "data_wait", "utilisation")
COMMAND = """
import json, sys
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain

mapping, data, run, least, most, options = json.loads(sys.argv[1]), *sys.argv[2:7]
try:
    pretrain(build(PretrainRecipe, mapping, source="test"), data, run, workers=(int(least), int(most)),
             progress=lambda line: print(json.dumps(line), flush=True), **json.loads(options))
except (JobError, UserError) as error:
    sys.exit(f"tokenfree: {error}")
"""


class Training:
    """`tokenfree pretrain` as a process of its own; `lines` reads what it reported so far."""

    def __init__(
        self,
        recipe: PretrainRecipe,
        data: str,
        run: str,
        *,
        log: Path,
        workers: tuple[int, int] = (1, 1),
        python: Sequence[str] = (sys.executable,),
        options: Mapping[str, Any] | None = None,
        **env: str,
    ) -> None:
        self.log = log
        arguments = [json.dumps(to_mapping(recipe)), data, run, *map(str, workers), json.dumps(options or {})]
        self.process: subprocess.Popen[bytes] | Forked
        with log.open("wb") as output:
            if workers == (1, 1):
                self.process = fork(COMMAND, *arguments, stdout=output, stderr=output)
                return
            self.process = subprocess.Popen(
                [*python, "-c", COMMAND, *arguments],
                cwd=REPOSITORY,
                env={**os.environ, **env},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def lines(self) -> list[dict[str, Any]]:
        whole = [line for line in self.log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        return [json.loads(line) for line in whole if line.startswith(b"{")]

    def steps(self) -> list[int]:
        return [line["step"] for line in self.lines() if "loss" in line]

    def wait_for(self, seen: Callable[[list[dict[str, Any]]], bool], seconds: float = 250) -> None:
        """Wait until the lines are such."""
        until = time.monotonic() + seconds
        while not seen(self.lines()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def wait_for_step(self, step: int, seconds: float = 250) -> None:
        """Wait until `step` steps are done."""
        self.wait_for(lambda lines: any("loss" in line and line["step"] >= step for line in lines), seconds)

    def end(self, seconds: float = 250) -> int:
        """Wait for the end; returns the exit status."""
        return self.process.wait(seconds)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Starts training commands; what is left of them is killed after the test."""
    started: list[Training] = []

    def begin(*arguments: Any, **settings: Any) -> Training:
        started.append(Training(*arguments, log=tmp_path / f"log_{len(started)}.txt", **settings))
        return started[-1]

    yield begin
    for training in started:
        if training.process.poll() is None:
            training.process.kill()
        training.process.wait()


@pytest.fixture
def history() -> Callable[[Path], list[dict[str, Any]]]:
    """The lines of a metrics.jsonl without what the clock says."""

    def read(run: Path) -> list[dict[str, Any]]:
        lines = read_json_lines(run / "metrics.jsonl")
        return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]

    return read
