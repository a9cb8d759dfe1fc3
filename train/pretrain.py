"""Pretraining as one call: a new run or one that goes on, in this process or over Ray workers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import torch

from tokenfree.preprocess.common import own_code
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import to_mapping
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.train.config import PretrainRecipe, check
from tokenfree.train.loop.loop import Loop
from tokenfree.train.machine.cpus import cores
from tokenfree.train.machine.provenance import attempt
from tokenfree.train.runs import trackers
from tokenfree.train.runs.folder_hashes import rewritten, write_hashes
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run
from tokenfree.train.runs.run_config import RunConfig, read_config
from tokenfree.train.start.extension import Extension
from tokenfree.train.start.first_checkpoint import GivenStart
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
    init_from: str | None = None,
    extend_to: int | None = None,
    trust_code: bool = False,
) -> PretrainResult:
    """Train `recipe` on the data directory `data` into the folder `run`, or go on where that run stood.

    Args:
        data: path or address of a data directory.
        run: path or address of a new or unfinished run.
        workers: the fewest and the most. One trains in this process, without Ray. More are workers of Ray Train, on
            the cluster of RAY_ADDRESS or on this machine alone.
        progress: gets every line of metrics.jsonl and events.jsonl as it appears.
        profile: leave a Chrome trace of a few steps in `<run>/profile/`.
        init_from: path or address of the weights to begin with: a run, or a folder of transformers. What fits by name
            and shape is loaded; optimizer, step and order of the data begin afresh. It is part of the run: to go on,
            give it again.
        extend_to: the steps that an existing run, finished or not, is to have in place of `train.steps`; the learning
            rate of the steps that are left is that of a run of so many, see train/start/extension.py.
        trust_code: run the code outside tokenfree that the run `init_from` names; that of `recipe` is run in any case.

    Raises:
        UserError: settings, data and run do not fit together (all problems in one line); there are no such weights, or
            they do not fit the model; or the run has more steps already.
        JobError: training failed; the message says on which rank and what to do.
    """
    data = data if "://" in data else os.path.abspath(data)
    manifest = load_manifest(data)
    problems = check(recipe, manifest, workers=workers, vocabulary=load_vocabulary(data))
    if problems:
        raise UserError(problems=problems)
    trackers.check(recipe.train.log_to)
    target = run_at(run)
    extension = None if extend_to is None else Extension(target, recipe, extend_to)
    if extension is not None:
        recipe = extension.before
    start = (
        None
        if init_from is None
        else GivenStart(target, recipe, lambda each: Loop(each, data), init_from, trust_code=trust_code)
    )
    first = None if start is None else start.record
    target.open(RunConfig(recipe, data, manifest.fingerprint, first, own_code.hashes(recipe)))
    result = target.result()
    if result is not None:
        rewritten(target.name, ["config.yaml"])
    if result is not None and (extension is None or extension.is_done):
        return _result(target, result, already_complete=True)
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(target.claimed())
        claimed = run_at(run, owner)
        if extension is not None:
            extension.write(claimed, progress)
            recipe = extension.after
        config = read_config(claimed.name, recipe=recipe)
        claimed.write_config(dataclasses.replace(config, attempts=(*config.attempts, attempt())))
        if start is not None:
            start.write(claimed, progress)
        job = TrainJob(recipe, data, target.name, profile, has_first_checkpoint=start is not None, owner=owner)
        with trackers.tracked(recipe.train.log_to, target, to_mapping(recipe), progress) as on_line:
            _train(job, workers, on_line)
        write_hashes(target.name)
    result = target.result()
    assert result is not None, "the worker of rank 0 writes the result before it ends"
    return _result(target, result)


def _train(job: TrainJob, workers: tuple[int, int], on_line: OnLine | None) -> None:
    """Do the job in this process, or with workers of Ray where there are to be several."""
    if workers[1] > 1:
        from tokenfree.train.ray.supervisor import work_on_ray

        work_on_ray(job, workers, on_line)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = job.recipe.train.threads or min(cores(), torch.get_num_threads())
    work(job, device=device, threads=threads, on_line=on_line)


def _result(run: Run, result: dict[str, Any], *, already_complete: bool = False) -> PretrainResult:
    starts = sum(event["event"] in ("start", "resume") for event in run.events())
    return PretrainResult(run=run.name, restarts=starts - 1, already_complete=already_complete, **result)
