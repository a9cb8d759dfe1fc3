"""Evaluate a pretraining run on held-out windows. Windows and masks are the same in every evaluation."""

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
    """Evaluate a checkpoint of `run` on `data`; `checkpoint_of` says which checkpoint is the default.

    The result has `step` and the values of `Loop.validate`. Objectives that have context-free baselines add:
    `baseline_...`, the values of `Baselines.numbers`; `margin` and `probe`, both in nats per hidden target, of
    `what_is_read`; `..._low` and `..._high`, the ends of 95% intervals over windows; `languages` and `scripts`.

    `num_windows` is by default that of the run's recipe. With `trust_code`, code outside tokenfree that the run names
    is run.

    Raises UserError if the run cannot be evaluated on these data, JobError if the checkpoint is damaged.
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
    symbols, vocabulary = loop.recipe.model.embedder.symbols, loop.windows.vocabulary
    num_subwords = 0 if vocabulary is None else vocabulary.size
    batches = loop.windows.held_out()
    if change is not None:
        batches = (without_context(arrays, symbols, num_subwords, change) for arrays in batches)
    with loop.evaluating():
        return score_targets(loop.encoder, loop.model.head, batches, loop.device)


def what_is_read(loop: Loop, baselines: Baselines, own: TargetScores) -> dict[str, float]:
    """Return how much lower the model's loss `own` on hidden targets is than without context, in nats.

    `margin` compares it with the better of the baselines. `probe_blank` compares it with the same model when all text
    except white space is hidden, `probe_other` when the target is surrounded by the text of another window. `probe` is
    the smaller of these two. All differences are paired target by target.
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
    """Return scores of the hidden validation targets by the language of their window and by their own script.

    `languages` and `scripts` have one entry for each `name`, in descending order of `targets`, their number.
    `without_context` is the mean loss of the better of the baselines. A subword's script is that of its first letter,
    and "" for digits, punctuation and symbols.
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
