"""What a trial's budget is worth in steps, on the model and the data of the trial: by it the learning rate runs."""

from __future__ import annotations

import dataclasses
from typing import Any

from tokenfree.train.config import Recipe
from tokenfree.train.loop.step import Meter
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.sweep.space.recipe import Budget

_SAMPLED = 256  # examples whose characters are counted
_WARM, TIMED_STEPS = 2, 6  # steps before the clock runs, and steps by the clock
_AT_REST = 1e-12  # a learning rate at which nothing moves, whatever the recipe's own would do to the weights


def flops_of_step(loop: TrainingLoop[Any]) -> float:
    """Floating point operations of a step over the global batch, forward and backward, by the shapes of batch 0."""
    train = loop.recipe.train
    meter = Meter(loop.encoder, loop.model.head, device=loop.device, precision=train.precision)
    arrays = loop.loader.batch(0)
    return meter.flops(arrays) / len(arrays["sample_ids"]) * train.global_batch


def characters_of_step(loop: TrainingLoop[Any]) -> float:
    """Characters of text in a step over the global batch, by the mean of the first examples of the data."""
    counts: list[int] = []
    step = 0
    while len(counts) < _SAMPLED:
        counts += list(loop.loader.batch(step)["num_characters"])
        step += 1
    return float(sum(counts)) / len(counts) * loop.recipe.train.global_batch


def recipe_for_timing(recipe: Recipe) -> Recipe:
    """The recipe of a loop for `seconds_of_step`: the same work a step, on weights that stay as they begin."""
    train = dataclasses.replace(recipe.train, steps=_WARM + TIMED_STEPS, learning_rate=_AT_REST)
    return dataclasses.replace(recipe, train=train)


def seconds_of_step(loop: TrainingLoop[Any]) -> float:
    """The mean seconds of a step, measured on a few of a fresh loop of `recipe_for_timing`, which is then spent."""
    seconds: list[float] = []
    loop.train_until(_WARM + TIMED_STEPS, lambda line: seconds.append(line["seconds"]))
    return sum(seconds[_WARM:]) / TIMED_STEPS


def steps_of(budget: Budget, loop: TrainingLoop[Any], seconds: float | None = None) -> int:
    """The steps that `budget` is worth to `loop`, at least 1.

    Args:
        budget: of one trial.
        loop: the trial's own, at its beginning.
        seconds: of a step, needed where the budget is in seconds.
    """
    if budget.steps is not None:
        return budget.steps
    if budget.seconds is not None:
        assert seconds is not None, "a budget of seconds needs a step that was timed"
        return max(1, round(budget.seconds / seconds))
    if budget.flops is not None:
        return max(1, round(budget.flops / flops_of_step(loop)))
    return max(1, round((budget.characters or 0) / characters_of_step(loop)))
