"""A trained run on held-out windows: the same windows and masks in every evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.train.analyses.reading import (
    Change,
    TargetScores,
    breakdown,
    languages_of,
    score_targets,
    scripts_of_targets,
    without_context,
)
from tokenfree.train.config import check
from tokenfree.train.data.mixture import Data, given_or_parsed, load_data_manifest, load_data_vocabulary
from tokenfree.train.data.validation import Baselines
from tokenfree.train.intervals import mean_over_windows
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.run import checkpoint_of


def evaluate(
    run: str,
    data: Data | Sequence[str],
    *,
    num_windows: int | None = None,
    step: int | None = None,
    device: str = "cpu",
    trust_code: bool = False,
) -> dict[str, Any]:
    """A checkpoint of `run` (see `checkpoint_of` for which) on `data`.

    Return `step`, what `Loop.validate` gives, and for objectives that have them the baselines without context
    (`Baselines.numbers`, prefixed `baseline_`), how far below the best of them the loss of the hidden targets is
    (`margin`), and how much of that the model reads (`probe`, see `what_is_read`). These two are nats per hidden
    target; `_low` and `_high` are the ends of 95% intervals over windows. `languages` and `scripts` are lists over
    the languages of the windows and the scripts of the hidden targets, see `by_language_and_script`.

    Args:
        run: path or address of a run with a checkpoint.
        data: path or address of a data directory, with the vocabulary of the run's own data, or several, see
            `tokenfree.train.pretrain.pretrain`.
        num_windows: how many windows, spaced evenly over the validation split; by default as in the run's recipe.
        step: use the checkpoint of this step.
        device: such as "cpu" or "cuda:0".
        trust_code: run the code outside tokenfree that the run names.

    Raises:
        UserError: there is no such run, it has no checkpoint, it was imported, or its model cannot read these data.
        JobError: the checkpoint is damaged.
    """
    config = read_config(run, trust_code=trust_code)
    if not config.manifest:  # see train/huggingface/folders.py
        raise UserError(
            f"{run} was {config.data}: an encoder without the head of an objective, so that there is no loss to "
            "evaluate; encode texts with it (tokenfree.load_encoder), or train on with `tokenfree pretrain --init-from`"
        )
    recipe = config.recipe
    if num_windows is not None:
        recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, validation_windows=num_windows))
    checkpoint, data = checkpoint_of(run, step), given_or_parsed(data)
    vocabulary = load_data_vocabulary(data)
    problems = check(recipe, load_data_manifest(data), vocabulary=vocabulary)
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
    found: dict[str, Any] = {**checkpoint.record(), **loop.validate()}
    baselines = loop.windows.baselines()
    if baselines is not None:
        found |= {f"baseline_{name}": value for name, value in baselines.numbers().items()}
        own = score(loop)
        found |= what_is_read(loop, baselines, own)
        found |= by_language_and_script(loop, baselines, own)
    return found


def score(loop: Loop, change: Change | None = None) -> TargetScores:
    """The scores of the model of `loop` on the validation targets, with another context where one is given."""
    symbols, vocabulary = loop.recipe.model.embedder.symbols, loop.windows.vocabulary
    num_subwords = 0 if vocabulary is None else vocabulary.size
    batches = loop.windows.held_out()
    if change is not None:
        batches = (without_context(arrays, symbols, num_subwords, change) for arrays in batches)
    with loop.evaluating():
        return score_targets(loop.encoder, loop.model.head, batches, loop.device)


def what_is_read(loop: Loop, baselines: Baselines, own: TargetScores) -> dict[str, float]:
    """How much less the model of `loop` loses on the hidden validation targets than what reads no context, in nats.

    `margin` is against the better of the baselines; `probe_blank` and `probe_other` are against the model itself with
    all text but white space hidden, and with the text of another window around the target (see
    `tokenfree.train.analyses.reading`); `probe` is the smaller of the two. All are paired target by target with `own`,
    which is what `score` gives.
    """
    blank, other = score(loop, "blank"), score(loop, "other")
    hidden = own.hidden_N
    against = {"margin": baselines.best_masked_only_N, "probe_blank": blank.loss_N, "probe_other": other.loss_N}
    found = {}
    for name, loss_N in against.items():
        interval = mean_over_windows((loss_N - own.loss_N)[hidden], own.sample_ids_N[hidden])
        found |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {**found, "probe": min(found["probe_blank"], found["probe_other"])}


def by_language_and_script(loop: Loop, baselines: Baselines, own: TargetScores) -> dict[str, list[dict[str, Any]]]:
    """The hidden validation targets of `loop` by the language of their window and by their own script.

    Both `languages` and `scripts` hold for each `name` the `targets` (how many), and over these the mean `loss` (nats)
    and `accuracy` of `own`, which is what `score` gives, and the loss `without_context`, of the better of the
    baselines; most targets first. A subword's script is that of its first letter; digits, punctuation and symbols have
    none: "".
    """
    hidden = own.hidden_N
    values = {"loss": own.loss_N, "accuracy": own.correct_N, "without_context": baselines.best_masked_only_N}
    symbols = loop.recipe.objective.symbols(loop.windows.vocabulary)
    assert symbols is not None, "there are baselines"
    names = {
        "languages": languages_of(loop.data, "validation", own.sample_ids_N),
        "scripts": scripts_of_targets(symbols, loop.windows.held_out()),
    }
    of_hidden = {what: value_N[hidden] for what, value_N in values.items()}
    return {kind: breakdown(name_N[hidden], of_hidden) for kind, name_N in names.items()}
