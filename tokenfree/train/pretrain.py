"""Pretraining as one call: a new run or one that goes on, in this process or over Ray workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.train.config import PretrainRecipe, check, with_rows_for
from tokenfree.train.data.mixture import Data, absolute, given_or_parsed, load_data_manifest, load_data_vocabulary
from tokenfree.train.jobs.run_to_end import RunOrder, num_restarts, run_to_end
from tokenfree.train.jobs.start import Extension, GivenStart
from tokenfree.train.loop.pretraining import Loop, TrainJob
from tokenfree.train.runs.checkpoints import checkpoint_name
from tokenfree.train.runs.config import RunConfig, as_recorded
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run


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
    data: Data | Sequence[str],
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
        data: path or address of a data directory; or several, as a `Mixture` or in words such as ["A:0.7", "B:0.3"]:
            see train/data/mixture.py.
        run: path or address of a new or unfinished run.
        workers: the fewest and the most. One trains in this process, without Ray. More are workers of Ray Train, on
            the cluster of RAY_ADDRESS or on this machine alone.
        progress: gets every line of metrics.jsonl and events.jsonl as it appears.
        profile: leave a Chrome trace of a few steps in `<run>/profile/`.
        init_from: path or address of the weights to begin with: a run, or a folder of transformers. What fits by name
            and shape is loaded; optimizer, step and order of the data begin afresh. It is part of the run: to go on,
            give it again.
        extend_to: the steps that an existing run, finished or not, is to have in place of `train.steps`; the learning
            rate of the steps that are left is that of a run of so many, see train/jobs/start.py.
        trust_code: run the code outside tokenfree that the run `init_from` names; that of `recipe` is run in any case.

    Raises:
        UserError: settings, data and run do not fit together (all problems in one line); there are no such weights, or
            they do not fit the model; or the run has more steps already.
        JobError: training failed; the message says on which rank and what to do.
    """
    data = absolute(given_or_parsed(data))
    manifest, vocabulary = load_data_manifest(data), load_data_vocabulary(data)
    recipe = with_rows_for(recipe, vocabulary)
    problems = check(recipe, manifest, workers=workers, vocabulary=vocabulary)
    if problems:
        raise UserError(problems=problems)
    target = Run(run)
    recipe = as_recorded(recipe, target.name)
    extension = None if extend_to is None else Extension(target, recipe, extend_to)
    if extension is not None:
        recipe = extension.before
    start = None
    if init_from is not None:
        start = GivenStart(target, recipe, lambda each: Loop(each, data), init_from, trust_code=trust_code)
    first = None if start is None else start.record

    def make_job(recipe: PretrainRecipe, owner: str | None) -> TrainJob:
        return TrainJob(
            recipe=recipe,
            data=data,
            run=target.name,
            profile=profile,
            has_first_checkpoint=start is not None,
            owner=owner,
        )

    config = RunConfig(recipe, data, manifest.fingerprint, first, own_code.hashes(recipe))
    result, was_complete = run_to_end(target, RunOrder(config, make_job, start, extension), workers, progress)
    last = checkpoint_name(result["steps"])
    result["checkpoint"] = f"{target.name}/checkpoints/{last}"  # the run may have been moved
    return PretrainResult(run=target.name, restarts=num_restarts(target), already_complete=was_complete, **result)
