"""A trained run on held-out windows: the same windows and masks in every evaluation."""

from __future__ import annotations

import dataclasses

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.train.analyses.contexts import Change, without_context
from tokenfree.train.analyses.intervals import mean_over_windows
from tokenfree.train.analyses.target_scores import TargetScores, score_targets
from tokenfree.train.config import check
from tokenfree.train.data.baselines import Baselines
from tokenfree.train.loop.loop import Loop
from tokenfree.train.runs.locate import newest_checkpoint
from tokenfree.train.runs.run_config import read_config


def evaluate(run: str, data: str, *, num_windows: int | None = None, device: str = "cpu") -> dict[str, float | int]:
    """The newest checkpoint of `run` on `data`: `step`, what `Loop.validate` gives, and for objectives that have them
    the baselines without context (`Baselines.numbers`, prefixed `baseline_`), how far below the best of them the loss
    of the hidden targets is (`margin`), and how much of that the model reads (`probe`, see `what_is_read`). These two
    are nats per hidden target; `_low` and `_high` are the ends of 95% intervals over windows.

    Args:
        run: path or address of a run with a checkpoint.
        data: path or address of a data directory, with the vocabulary of the run's own data.
        num_windows: how many windows, spaced evenly over the validation split; by default as in the run's recipe.
        device: such as "cpu" or "cuda:0".

    Raises:
        UserError: there is no such run, it has no sound checkpoint, it was imported, or its model cannot read these
            data.
    """
    config = read_config(run)
    if not config.manifest:  # see train/huggingface/folders.py
        raise UserError(
            f"{run} was {config.data}: an encoder without the head of an objective, so that there is no loss to "
            "evaluate; encode texts with it (tokenfree.load_encoder), or train on with `tokenfree pretrain --init-from`"
        )
    recipe = config.recipe
    if num_windows is not None:
        recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, validation_windows=num_windows))
    checkpoint = newest_checkpoint(run)
    vocabulary = load_vocabulary(data)
    problems = check(recipe, load_manifest(data), vocabulary=vocabulary)
    sha256 = vocabulary.sha256 if vocabulary is not None else None
    if checkpoint.state.vocabulary != sha256:
        problems.append(
            f"{data} has another vocabulary than the data of {run}; preprocess it with that vocabulary/subwords.model "
            "as vocabulary.model"
        )
    if problems:
        raise UserError(problems=problems)
    loop = Loop(recipe, data, device=device)
    loop.load_model(checkpoint)
    found: dict[str, float | int] = {"step": checkpoint.step, **loop.validate()}
    baselines = loop.baselines()
    if baselines is not None:
        found |= {f"baseline_{name}": value for name, value in baselines.numbers().items()}
        found |= what_is_read(loop, baselines)
    return found


def what_is_read(loop: Loop, baselines: Baselines) -> dict[str, float]:
    """How much less the model of `loop` loses on the hidden validation targets than what reads no context, in nats.

    `margin` is against the better of the baselines; `probe_blank` and `probe_other` are against the model itself with
    all text but white space hidden, and with the text of another window around the target (see
    `tokenfree.train.analyses.contexts`); `probe` is the smaller of the two. All are paired target by target.
    """
    symbols, vocabulary = loop.recipe.model.embedder.symbols, loop.vocabulary
    num_subwords = 0 if vocabulary is None else vocabulary.size

    def score(change: Change | None) -> TargetScores:
        batches = loop.validator.batches()
        if change is not None:
            batches = (without_context(arrays, symbols, num_subwords, change) for arrays in batches)
        return score_targets(loop.encoder, loop.model.head, batches, loop.device)

    with loop.evaluating():
        own, blank, other = score(None), score("blank"), score("other")
    hidden = own.hidden_N
    against = {"margin": baselines.best_masked_only_N, "probe_blank": blank.loss_N, "probe_other": other.loss_N}
    found = {}
    for name, loss_N in against.items():
        interval = mean_over_windows((loss_N - own.loss_N)[hidden], own.sample_ids_N[hidden])
        found |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {**found, "probe": min(found["probe_blank"], found["probe_other"])}
