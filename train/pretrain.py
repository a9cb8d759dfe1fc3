"""Pretraining as one call: a new run or one that goes on, in this process or over Ray workers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from preprocess.errors import UserError
from preprocess.manifest import load_manifest
from train import metrics
from train.config import PretrainRecipe, check, load_vocabulary
from train.run_folder import lock, open_run, read_result
from train.worker import Job, work

Progress = Callable[[Mapping[str, Any]], None]  # gets every line of metrics.jsonl and events.jsonl as it appears


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """What a finished run came to. Losses and entropies are nats per target."""

    run: str
    steps: int
    loss: float  # of the last step
    validation_loss: float
    validation_accuracy: float
    validation_targets: int
    unigram_entropy: float | None  # of the targets' symbols in the training split; None where those are not counted
    unigram_cross_entropy: float | None  # of the validation targets under those frequencies
    best_step: int  # with the lowest validation loss
    characters: int
    seconds: float  # in steps, validations and checkpoints left out
    restarts: int  # how often workers were started again after the first time
    checkpoint: str
    symbol: str | None = None  # what a target is, such as "subword"; None where those are not counted
    validation_means: Mapping[str, float] = dataclasses.field(default_factory=dict)  # what else the objective reports
    already_complete: bool = False


def pretrain(
    recipe: PretrainRecipe,
    data: str,
    run: str,
    *,
    workers: tuple[int, int] = (1, 1),
    progress: Progress | None = None,
) -> PretrainResult:
    """Train `recipe` on the data directory `data` into the folder `run`, or go on where that run stood.

    One worker trains in this process, without Ray. More are workers of Ray Train, at least and at most as many as
    `workers` says, on the cluster of RAY_ADDRESS or on this machine alone.

    Raises:
        UserError: settings, data and run do not fit together (all mistakes in one line).
        JobError: training failed; the message says on which rank and what to do.
    """
    data = data if "://" in data else os.path.abspath(data)
    manifest = load_manifest(data)
    mistakes = check(recipe, manifest, workers=workers, vocabulary=load_vocabulary(data))
    if mistakes:
        raise UserError("; ".join(mistakes))
    if "://" in run:
        raise UserError(f"--output {run}: a run needs a folder that all workers can lock and rename in; mount it")
    folder = Path(run).absolute()
    open_run(folder, recipe, data, manifest.fingerprint)
    result = read_result(folder)
    if result is not None:
        return _result(folder, result, already_complete=True)
    held = UserError(f"{run} is being trained by another command; wait for it or give another --output")
    with lock(folder / "lock", seconds=0, held=held):
        job = Job(recipe, data, str(folder))
        if workers[1] == 1:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            work(job, device=device, threads=recipe.train.threads, on_line=progress)
        else:
            from train.ray_train import work_on_ray  # Ray takes seconds to import

            work_on_ray(job, workers, progress)
    result = read_result(folder)
    assert result is not None, "the worker of rank 0 writes the result before it ends"
    return _result(folder, result)


def _result(folder: Path, result: dict[str, Any], *, already_complete: bool = False) -> PretrainResult:
    events = metrics.read(folder / "events.jsonl")
    starts = sum(event["event"] in ("start", "resume") for event in events)
    return PretrainResult(run=str(folder), restarts=starts - 1, already_complete=already_complete, **result)
