"""Recipes: their kinds, where they are found, and how the options of a command change them.

The recipes of tokenfree are the files in `bases`, one recipe each, and the entries of the files in
`variants`, one file per family. A blank line ends an entry. The comment above an entry belongs to it.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.core.yaml_text import parse_yaml
from tokenfree.workflows.recipes.keys import BASE, KeyGroup, listed

if TYPE_CHECKING:
    from tokenfree.train.sweep.recipe import SweepRecipe

FOLDER = Path(__file__).parent
# A pattern finds the entries, because PyYAML drops comments and takes half a second for all files.
_ENTRY = re.compile(r"^((?:#.*\n)+)([\w-]+):\n((?: .*\n)+)", re.MULTILINE)
_END = re.compile(r"(?<!\bal)[.:;]\s(?![^()]*\))")  # not after the abbreviation "et al", nor in parentheses


@dataclass(frozen=True)
class RecipeKind:
    """A kind of recipes, which build the same settings.

    `module` is imported only when needed, because this takes seconds. `top_keys` are also options of the
    command. If the kind is `partial`, only some keys of the settings may be set, and only as options.
    """

    title: str
    command: str
    module: str
    settings: str
    top_keys: tuple[str, ...]
    partial: bool = False

    def settings_class(self) -> type:
        return getattr(importlib.import_module(self.module), self.settings)

    def groups(self) -> list[KeyGroup]:
        """Return all keys, including those that only files may have."""
        groups = listed(self.settings_class())
        if self.partial:
            return [group for group in groups if group.name.split(".")[0] in self.top_keys]
        if BASE.name in self.top_keys:
            return groups
        return [replace(groups[0], keys=(BASE, *groups[0].keys)), *groups[1:]]


PREPROCESSING = RecipeKind(
    "preprocessing recipe",
    "preprocess",
    "tokenfree.preprocess.config",
    "PreprocessConfig",
    (
        *(
            "wikipedia",
            "books",
            "hf_dataset",
            "text_column",
            "id_column",
            "language_column",
            "language",
            "namespaces",
        ),
        *("window", "vocabulary", "filters", "near_duplicates", "columns", "shards", "shard_characters"),
        *("split_bytes", "validation_fraction", "seed"),
    ),
)
PRETRAINING = RecipeKind(
    "pretraining recipe",
    "pretrain",
    "tokenfree.train.config",
    "PretrainRecipe",
    ("model", "objective", "train"),
)
FINETUNING = RecipeKind(
    "fine-tuning recipe",
    "finetune",
    "tokenfree.train.config",
    "FinetuneRecipe",
    ("model", "task", "train"),
)
SWEEP = RecipeKind(
    "sweep recipe",
    "sweep",
    "tokenfree.train.sweep.recipe",
    "SweepRecipe",
    (
        *("base", "variants", "overrides", "space", "searcher", "scheduler", "objectives", "trials", "seeds"),
        *("budget", "reports", "gpus_per_worker", "concurrent", "seed"),
    ),
)
IMPORTED = replace(PRETRAINING, command="import", top_keys=("model", "train"), partial=True)
KINDS = (PREPROCESSING, PRETRAINING, FINETUNING, SWEEP)


def kind_of(settings: type) -> RecipeKind:
    """Return the kind of the recipes that build a settings class. There must be one."""
    home = (settings.__module__, settings.__name__)
    return next(kind for kind in KINDS if (kind.module, kind.settings) == home)


def refuse_other_kind(kind: RecipeKind, mapping: Mapping[str, Any], recipe: AnyPath) -> None:
    """Raise UserError if the mapping of a recipe matches another kind better, by the number of its top-level keys."""
    num_matches = {candidate: len({BASE.name, *candidate.top_keys} & mapping.keys()) for candidate in KINDS}
    other = max(KINDS, key=lambda candidate: num_matches[candidate])
    if num_matches[other] > num_matches[kind]:
        hint = (
            " (a sweep names it as its base)" if kind == SWEEP and other in (PRETRAINING, FINETUNING) else ""
        )
        raise UserError(
            f"recipe {recipe}: a {other.title}, where a {kind.title} is expected; run tokenfree {other.command} "
            f"{recipe}{hint}"
        )


def names() -> list[str]:
    return sorted(_library())


def about(recipe: str) -> str:
    """Return a description of a recipe: its opening comment up to the first full stop, colon or semicolon."""
    comment = " ".join(line.strip("# ") for line in _comment(_library()[recipe]).splitlines())
    return _END.split(comment, maxsplit=1)[0].rstrip(".:;")


def read(recipe: AnyPath) -> dict[str, Any]:
    """Return the mapping of a recipe, given by name, file or a run's config.yaml.

    Raises UserError if there is none.
    """
    try:
        mapping = parse_yaml(_text(recipe)) or {}
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"recipe {recipe}: not YAML: {error}") from None
    if not isinstance(mapping, dict):
        raise UserError(
            f"recipe {recipe}: should be a mapping of keys to values, not {type(mapping).__name__}"
        )
    if "manifest" in mapping and isinstance(mapping.get("recipe"), dict):  # config.yaml of a run
        return mapping["recipe"]
    return mapping


def read_based(recipe: AnyPath) -> dict[str, Any]:
    """Return a recipe merged over the one that its key `base` names, and so on.

    Raises UserError if that fails.
    """
    from tokenfree.core.settings import merge

    layers, seen = [read(recipe)], [os.fspath(recipe)]
    while "base" in layers[-1]:
        base = layers[-1].pop("base")
        if base in seen:
            raise UserError(
                f"recipe {recipe}: base: {' -> '.join([*seen, str(base)])} goes round in a circle"
            )
        seen.append(base)
        layers.append(read(base))
    return functools.reduce(merge, reversed(layers))


def resolved_text(recipe: str) -> str:
    """Return the YAML of a recipe merged over its bases, with its comment.

    A sweep keeps the name of its base.
    """
    mapping = read(recipe)
    if "space" not in mapping:
        mapping = read_based(recipe)
    text = yaml.safe_dump(mapping, default_flow_style=None, sort_keys=False, allow_unicode=True, width=120)
    return _comment(_text(recipe)) + text


def resolve_sweep(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a sweep with names of recipes replaced by their mappings.

    The names are `base` and the values of `variant`. If the base is a fine-tuning recipe, missing keys get
    the defaults for a sweep of a task. Raises UserError if a named recipe cannot be read, or is of another
    kind.
    """
    from tokenfree.core.settings import value_at
    from tokenfree.train.sweep.recipe import with_task_defaults  # takes seconds to import

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


def check_kind(kind: RecipeKind, recipe: AnyPath) -> None:
    """Raise UserError if a recipe is of another kind.

    One that only names its base has the kind of the base.
    """
    mapping, seen = read(recipe), {recipe}
    while set(mapping) == {"base"} and isinstance(mapping["base"], str) and mapping["base"] not in seen:
        seen.add(mapping["base"])
        mapping = read(mapping["base"])
    refuse_other_kind(kind, mapping, recipe)


def _text(recipe: AnyPath) -> str:
    """Return the YAML of a recipe as it is in its file. Raises UserError if there is none."""
    from tokenfree.core.stored_files import check_finished

    if not isinstance(recipe, str | os.PathLike):  # the key `base` of a recipe can be any YAML value
        raise UserError(f"base: should be the name or file of a recipe, not {recipe!r}")
    recipe = os.fspath(recipe)
    if not recipe.strip():  # an unset shell variable
        raise UserError(f"a recipe has an empty name; give a file or a name ({_nearest('')})")
    if recipe in _library():
        return _library()[recipe]
    path = Path(expand_home(recipe))
    if path.exists() and not path.is_file():
        raise UserError(
            f"recipe {recipe}: is not a file, but a folder, pipe or device; save it as a file first"
        )
    if not path.is_file():
        raise UserError(f"recipe {recipe}: no such file, and no recipe of that name ({_nearest(recipe)})")
    check_finished(path.parent, path.name.__eq__)  # config.yaml of a run, best.yaml of a sweep
    return path.read_text(encoding="utf-8")


def _comment(text: str) -> str:
    return "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))


@functools.cache
def _library() -> dict[str, str]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (FOLDER / "bases").glob("*.yaml")}
    for path in (FOLDER / "variants").glob("*.yaml"):
        for comment, name, body in _ENTRY.findall(path.read_text(encoding="utf-8")):
            texts[name] = comment + textwrap.dedent(body)
    return texts


def _nearest(recipe: str) -> str:
    close = difflib.get_close_matches(recipe, names(), n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}All of them: tokenfree model --list"


def resolve(recipe: str | None, config_file: str | None) -> dict[str, Any]:
    """Return the mapping of the recipe with `--config` merged over it.

    Raises UserError if a file is not a recipe.
    """
    from tokenfree.core.settings import merge

    mapping = {} if recipe is None else read(recipe)
    if config_file is not None:
        mapping = merge(mapping, read(config_file))
    return mapping


def warn_of_lost(keys: Iterable[str]) -> None:
    """Print the keys of a recipe, if any, that were dropped because a part was replaced by one without them."""
    lost_keys = ", ".join(dict.fromkeys(keys))
    if lost_keys:
        print(
            f"tokenfree: dropped keys of the recipe that the new part does not have: {lost_keys}",
            file=sys.stderr,
        )


def build_sweep(mapping: dict[str, Any], overrides: Mapping[str, Any], source: str) -> SweepRecipe:
    """Build a sweep from the mapping of a recipe and overrides. Raises UserError that names all problems."""
    from tokenfree.core.settings import build, override
    from tokenfree.train.sweep.recipe import SweepRecipe

    if "budget" in overrides:
        mapping.pop("budget", None)  # the new budget may be in another unit
    mapping, lost = override(SweepRecipe, mapping, overrides)
    sweep = build(SweepRecipe, resolve_sweep(mapping), source=source)
    warn_of_lost(lost)
    return sweep
