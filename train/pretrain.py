"""Pretraining as one call: a new run or one that goes on, in this process or over Ray workers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from preprocess.errors import UserError
from preprocess.manifest import load_manifest
from preprocess.settings import to_mapping
from train import trackers
from train.config import PretrainRecipe, check, load_vocabulary
from train.cores import cores
from train.run_folder import RunFolder, run_at
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
    profile: bool = False,
) -> PretrainResult:
    """Train `recipe` on the data directory `data` into the folder `run`, or go on where that run stood.

    One worker trains in this process, without Ray. More are workers of Ray Train, at least and at most as many as
    `workers` says, on the cluster of RAY_ADDRESS or on this machine alone. With `profile`, a Chrome trace of a few
    steps is left in `<run>/profile/`.

    Raises:
        UserError: settings, data and run do not fit together (all mistakes in one line).
        JobError: training failed; the message says on which rank and what to do.
    """
    data = data if "://" in data else os.path.abspath(data)
    manifest = load_manifest(data)
    mistakes = check(recipe, manifest, workers=workers, vocabulary=load_vocabulary(data))
    if mistakes:
        raise UserError("; ".join(mistakes))
    trackers.check(recipe.train.log_to)
    place = run_at(run)
    place.open(recipe, data, manifest.fingerprint)
    result = place.result()
    if result is not None:
        return _result(place, result, already_complete=True)
    with (
        place.claimed() as owner,
        trackers.tracked(recipe.train.log_to, place, to_mapping(recipe), progress) as on_line,
    ):
        job = Job(recipe, data, place.name, profile=profile, owner=owner)
        if workers[1] == 1:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            threads = recipe.train.threads or min(cores(), torch.get_num_threads())
            work(job, device=device, threads=threads, on_line=on_line)
        else:
            from train.ray_train import work_on_ray  # Ray takes seconds to import

            work_on_ray(job, workers, on_line)
    result = place.result()
    assert result is not None, "the worker of rank 0 writes the result before it ends"
    return _result(place, result)


def _result(place: RunFolder, result: dict[str, Any], *, already_complete: bool = False) -> PretrainResult:
    starts = sum(event["event"] in ("start", "resume") for event in place.events())
    return PretrainResult(run=place.name, restarts=starts - 1, already_complete=already_complete, **result)
