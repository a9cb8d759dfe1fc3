"""A fine-tuning run that is killed again and again ends as one that never was: to the byte."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.train.finetune.conftest import MakeTask, splits
from tests.train.fork_server import fork
from tokenfree.core.settings_values import fingerprint
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune

PROGRAM = """
import pickle, sys
from tokenfree.train.finetune import finetune
recipe, files, run = pickle.loads(bytes.fromhex(sys.argv[1]))
finetune(recipe, files, run, progress=lambda line: print(line.get("step"), line.get("event"), flush=True))
"""
LEFT = ("result.json", "predictions/dev.jsonl", "predictions/test.jsonl")


def killed_after(lines: int, seconds: float, recipe: FinetuneRecipe, files: dict[str, str], run: Path) -> int:
    """Train in a child process, kill it after these lines of progress and seconds, and return its exit status."""
    import pickle

    argument = pickle.dumps((recipe, files, str(run))).hex()
    reading, writing = os.pipe()
    with open(reading) as output:
        with open(writing, "w") as stdout:
            process = fork(PROGRAM, argument, stdout=stdout)
        for _ in range(lines):
            if not output.readline():
                break
        time.sleep(seconds)
        process.kill()
        return process.wait()


@pytest.mark.parametrize(
    ("task", "prefix", "kills"),
    [
        ("classification", "", 2),
        pytest.param("classification", "", 20, marks=(pytest.mark.slow, pytest.mark.timeout(900))),
        pytest.param("tagging", "tags_", 20, marks=(pytest.mark.slow, pytest.mark.timeout(900))),
    ],
)
def test_killed_at_several_moments(
    task: str, prefix: str, kills: int, make_task: MakeTask, files: dict[str, str], tmp_path: Path
) -> None:
    recipe, given = make_task(task, steps=12), splits(files, prefix)
    finetune(recipe, given, str(tmp_path / "undisturbed"))
    draws = random.Random(14)
    # A run has 1 line to begin, 12 of steps, 6 of validations; checkpoints after 3 steps.
    for number in range(kills):
        lines = draws.randrange(1, max(3, 24 // kills))
        status = killed_after(lines, draws.random() / 20, recipe, given, tmp_path / "killed")
        assert status in (-signal.SIGKILL, 0), number
    result = finetune(recipe, given, str(tmp_path / "killed"))
    assert result.restarts > 1
    for name in LEFT:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    metrics = [
        [
            {k: v for k, v in line.items() if k not in ("seconds", "data_wait", "utilisation")}
            for line in _lines(run)
        ]
        for run in (tmp_path / "undisturbed", tmp_path / "killed")
    ]
    assert fingerprint({"lines": metrics[0]}) == fingerprint({"lines": metrics[1]})


def _lines(run: Path) -> list[dict[str, float]]:
    import json

    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
