"""What a sweep of a fine-tuning recipe does where its own recipe does not say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tokenfree.core.settings import draft, merge, value_at
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.sweep.space.recipe import TASK
from tokenfree.train.sweep.space.targets import ERROR, SCORE

_LISTS = ("choice", "grid", "integer")


def with_task_defaults(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of a sweep whose base stands in it; one of pretraining as it is.

    A trial of a task then is the run that `tokenfree finetune` would make of its setting: as many steps, validated as
    often, none stopped early. All settings are tried where they can be listed.
    """
    base, space = mapping.get("base"), mapping.get("space")
    if not isinstance(base, Mapping) or TASK not in base:
        return dict(mapping)
    recipe = draft(FinetuneRecipe, merge(base, mapping.get("overrides") or {}))
    if recipe.settings is None or recipe.problems:
        return dict(mapping)  # which are told when the sweep is built
    train, lower = recipe.settings.train, recipe.settings.task.lower_is_better
    steps = value_at(mapping, "budget.steps", train.steps)
    defaults: dict[str, Any] = {
        "objectives": [(ERROR if lower else SCORE).metric],
        "budget": {"steps": train.steps},
        "reports": math.ceil(steps / train.validate_every_steps) if isinstance(steps, int) else 1,
        "scheduler": "none",
    }
    knobs = space.values() if isinstance(space, Mapping) else ()
    if all(isinstance(knob, Mapping) and any(kind in knob for kind in _LISTS) for knob in knobs):
        defaults["searcher"] = "grid"
    return {**defaults, **mapping}
