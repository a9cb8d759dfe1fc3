"""Pretraining as one call: a new run or one that goes on, in this process or over Ray workers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import torch

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import to_mapping
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.train.config import PretrainRecipe, check
from tokenfree.train.machine.cpus import cores
from tokenfree.train.runs import trackers
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run
from tokenfree.train.runs.run_config import RunConfig
from tokenfree.train.worker.worker import TrainJob, work


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """What a finished run came to. Losses and entropies are nats per target."""

    run: str  # path or address
    steps: int
    loss: float  # of the last step
    validation_loss: float
    validation_accuracy: float  # share of the targets whose right answer had the highest logit
    validation_targets: int
    unigram_entropy: float | None  # of the targets' symbols in the training split; None where those are not counted
    unigram_cross_entropy: float | None  # of the validation targets under those frequencies
    best_step: int  # with the lowest validation loss
    characters: int  # trained on, special ones and padding left out
    seconds: float  # in steps, validations and checkpoints left out
    restarts: int  # how often workers were started again after the first time
    checkpoint: str  # path or address of the last one
    symbol: str | None = None  # what a target is, such as "subword"; None where those are not counted
    clue: str | None = None  # what the input tells of a hidden target without any context, in words
    baselines: Mapping[str, float] = dataclasses.field(default_factory=dict)  # see `Baselines.numbers`
    validation_means: Mapping[str, float] = dataclasses.field(default_factory=dict)  # what else the objective reports
    already_complete: bool = False  # before this call, which then did nothing


def pretrain(
    recipe: PretrainRecipe,
    data: str,
    run: str,
    *,
    workers: tuple[int, int] = (1, 1),
    progress: OnLine | None = None,
    profile: bool = False,
) -> PretrainResult:
    """Train `recipe` on the data directory `data` into the folder `run`, or go on where that run stood.

    Args:
        data: path or address of a data directory.
        run: path or address of a new or unfinished run.
        workers: the fewest and the most. One trains in this process, without Ray. More are workers of Ray Train, on
            the cluster of RAY_ADDRESS or on this machine alone.
        progress: gets every line of metrics.jsonl and events.jsonl as it appears.
        profile: leave a Chrome trace of a few steps in `<run>/profile/`.

    Raises:
        UserError: settings, data and run do not fit together (all problems in one line).
        JobError: training failed; the message says on which rank and what to do.
    """
    data = data if "://" in data else os.path.abspath(data)
    manifest = load_manifest(data)
    problems = check(recipe, manifest, workers=workers, vocabulary=load_vocabulary(data))
    if problems:
        raise UserError("; ".join(problems))
    trackers.check(recipe.train.log_to)
    target = run_at(run)
    target.open(RunConfig(recipe, data, manifest.fingerprint))
    result = target.result()
    if result is not None:
        return _result(target, result, already_complete=True)
    with (
        target.claimed() as owner,
        trackers.tracked(recipe.train.log_to, target, to_mapping(recipe), progress) as on_line,
    ):
        job = TrainJob(recipe, data, target.name, profile=profile, owner=owner)
        if workers[1] == 1:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            threads = recipe.train.threads or min(cores(), torch.get_num_threads())
            work(job, device=device, threads=threads, on_line=on_line)
        else:
            from tokenfree.train.ray.launch import work_on_ray  # Ray takes seconds to import

            work_on_ray(job, workers, on_line)
    result = target.result()
    assert result is not None, "the worker of rank 0 writes the result before it ends"
    return _result(target, result)


def _result(run: Run, result: dict[str, Any], *, already_complete: bool = False) -> PretrainResult:
    starts = sum(event["event"] in ("start", "resume") for event in run.events())
    return PretrainResult(run=run.name, restarts=starts - 1, already_complete=already_complete, **result)
