"""SIGTERM as spot machines send it, to a worker inside Ray and to the command: a checkpoint first, no step twice."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.ray.child import ray_processes
from tokenfree.train.runs import checkpoints

MakeRecipe = Callable[..., PretrainRecipe]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def resumed(lines: list[dict[str, Any]]) -> int | None:
    """Return the step of the checkpoint from which training resumes, once the next step is done."""
    found = [number for number, line in enumerate(lines) if line.get("event") == "resume"]
    return lines[found[-1]]["step"] if found and any("loss" in line for line in lines[found[-1] :]) else None


def test_a_noticed_worker_and_a_noticed_command(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    recipe = make_recipe(steps=100_000, checkpoint_every_steps=90_000, validate_every_steps=90_000)
    run = tmp_path / "run"
    training = start(recipe, corpus, str(run), workers=(2, 2))
    training.wait_for_step(12)
    workers = ray_processes(training.process.pid, "ray::RayTrainW")
    os.kill(workers[1].pid, signal.SIGTERM)
    training.wait_for(lambda lines: resumed(lines) is not None)
    step = resumed(training.lines())
    messages = [line.get("message") for line in training.lines()]
    assert f"workers stopped after step {step} by SIGTERM; starting them again" in messages
    assert checkpoints.steps(run / "checkpoints") == [step]

    os.kill(training.process.pid, signal.SIGTERM)
    assert training.end() == 1
    last = checkpoints.steps(run / "checkpoints")[-1]
    expected = f"worker 0: stopped by SIGTERM after step {last}; the same command resumes it"
    assert training.log.read_text().splitlines()[-1] == f"tokenfree: {expected}"
    again = start(recipe, corpus, str(run), workers=(2, 2))
    again.wait_for(lambda lines: resumed(lines) == last)
    os.kill(again.process.pid, signal.SIGINT)
    assert again.end() == 1
    assert "stopped by SIGINT" in again.log.read_text()
    steps = training.steps() + again.steps()
    assert steps == list(range(1, len(steps) + 1))


def test_an_error_of_a_worker_is_its_own_with_nothing_of_ray(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    data = Path(shutil.copytree(corpus, tmp_path / "data"))
    for shard in data.glob("train/*.arrow"):
        shard.write_bytes(b"x" * shard.stat().st_size)
    training = start(make_recipe(), str(data), str(tmp_path / "run"), workers=(2, 2))
    assert training.end() == 1
    (message,) = [line for line in training.log.read_text().splitlines() if not line.startswith("{")]
    assert message.startswith("tokenfree: worker ")
    assert "data-00000-of-00001.arrow" in message
    assert "SHA-256 is not that of its manifest; run `tokenfree verify`" in message


def test_a_cluster_that_is_not_there_is_one_line(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    training = start(make_recipe(), corpus, str(tmp_path / "run"), workers=(2, 2), RAY_ADDRESS="127.0.0.1:1")
    assert training.end() == 1
    assert (
        training.log.read_text()
        .splitlines()[-1]
        .startswith("tokenfree: no Ray cluster answers at RAY_ADDRESS=127.0.0.1:1;")
    )
