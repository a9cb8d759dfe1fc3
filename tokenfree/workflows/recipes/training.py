"""Recipes and inputs of commands that train or evaluate: those of runs to resume, those of sweeps, data and files."""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, override, value_at
from tokenfree.core.settings_values import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.train.config import R
from tokenfree.train.data.mixture import Data, data_arguments, parse
from tokenfree.train.runs.config import RunConfig
from tokenfree.train.runs.formats import CONFIG_NAME
from tokenfree.train.sweep.recipe import SweepRecipe, with_task_defaults
from tokenfree.train.tasks.base import Split
from tokenfree.workflows.recipes.kinds import FINETUNING, PRETRAINING
from tokenfree.workflows.recipes.library import check_kind, load, read_based, warn_of_lost


def load_or_resume(
    cls: type[R], args: argparse.Namespace, read: Callable[..., RunConfig[R]], *needed: str
) -> R:
    """Return the recipe.

    If RECIPE or one of the `needed` arguments is missing, the run at --output replaces them.

    Raises UserError as `load` does, and if there is no run that `read` can read.
    """
    if not is_resumed(args, CONFIG_NAME, *needed):
        return load(cls, args)
    config = read(args.output, trust_code=args.trust_code)
    start = None if config.init_from is None else config.init_from.path
    fill_in(args, {**config.files, "data": data_arguments(config.data), "init_from": start})
    return load(cls, args, recorded=None if args.recipe else to_mapping(config.recipe))


def is_resumed(args: argparse.Namespace, name: str, *needed: str) -> bool:
    """Return True if arguments are missing that the file `name` in --output records.

    Raises UserError without it. That file as RECIPE counts as missing, so that all that it records is used.
    """
    if args.recipe is not None and os.path.abspath(args.recipe) == os.path.abspath(
        os.path.join(args.output, name)
    ):
        args.recipe = None
    spelled = {"recipe": "RECIPE"} | {argument: f"--{argument}" for argument in needed}
    missing = " and ".join(option for argument, option in spelled.items() if getattr(args, argument) is None)
    if missing and not Storage.at(args.output).size(name):
        raise UserError(
            f"{missing}: missing, and {args.output} has no {name} to resume. Give {missing} for a new one."
        )
    return bool(missing)


def fill_in(args: argparse.Namespace, recorded: Mapping[str, Any]) -> None:
    for name, value in recorded.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def data_of(args: argparse.Namespace) -> Data | None:
    """Return the data that `--data` names, or None if it was not given. Raises UserError if it is invalid."""
    return None if args.data is None else parse(args.data)


def files_of(args: argparse.Namespace) -> dict[Split, str]:
    paths: dict[Split, str | None] = {"train": args.train, "dev": args.dev, "test": args.test}
    return {split: path for split, path in paths.items() if path is not None}


def resolve_sweep(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a sweep with names of recipes replaced by their mappings.

    The names are `base` and the values of `variant`. If the base is a fine-tuning recipe, missing keys get
    the defaults for a sweep of a task. Raises UserError if a named recipe cannot be read, or is of another
    kind.
    """
    mapping = dict(mapping)
    if isinstance(mapping.get("base"), str):
        mapping["base"] = _read_base(mapping["base"])
    lists = [value_at(mapping, f"space.variant.{kind}") for kind in ("choice", "grid")]
    named = [name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)]
    if named:
        recorded = mapping.get("variants") or {}
        mapping["variants"] = {name: recorded.get(name) or _read_base(name) for name in named}
    return with_task_defaults(mapping)


def _read_base(recipe: str) -> dict[str, Any]:
    mapping = read_based(recipe)
    if "space" in mapping:
        raise UserError(
            f"recipe {recipe}: a sweep recipe, which cannot be inside a sweep. Name one of a single model."
        )
    check_kind(FINETUNING if "task" in mapping else PRETRAINING, recipe)
    return mapping


def build_sweep(mapping: dict[str, Any], overrides: Mapping[str, Any], source: str) -> SweepRecipe:
    """Build a sweep from the mapping of a recipe and overrides. Raises UserError that names all problems."""
    if "budget" in overrides:
        # The new budget may be in another unit.
        mapping.pop("budget", None)
    mapping, lost = override(SweepRecipe, mapping, overrides)
    sweep = build(SweepRecipe, resolve_sweep(mapping), source=source)
    warn_of_lost(lost)
    return sweep


def parse_workers(text: str) -> tuple[int, int]:
    """Return minimum and maximum: (4, 4) for `"4"`, (2, 8) for `"2:8"`. Raises UserError for other texts."""
    low, colon, high = text.partition(":")
    try:
        workers = (int(low), int(high) if colon else int(low))
    except ValueError:
        workers = (0, 0)
    if not 1 <= workers[0] <= workers[1]:
        raise UserError(f"--workers {text}: give a number such as 4, or the fewest and the most, such as 2:8")
    return workers
