"""The kinds of recipes: which settings each builds and which command reads it. A recipe of another kind is named so."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.workflows.recipes.keys import Key, KeyGroup, listed

BASE = Key("base", "text", "null", "in a file: the recipe that this one is laid over, by its name or file.")


@dataclass(frozen=True)
class RecipeKind:
    """Recipes that build the same settings.

    Attributes:
        title: what messages call such a recipe.
        command: that reads it, of `tokenfree`.
        module: where its settings class is, which takes seconds to import.
        settings: the name of that class.
        top_keys: the top-level keys, which are options of the command too.
        partial: not all keys of the class may be set, and files have no part in it.
    """

    title: str
    command: str
    module: str
    settings: str
    top_keys: tuple[str, ...]
    partial: bool = False

    def settings_class(self) -> type:
        """The settings class."""
        return getattr(importlib.import_module(self.module), self.settings)

    def groups(self) -> list[KeyGroup]:
        """All keys, those that only files have too."""
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
        *("wikipedia", "books", "hf_dataset", "text_column", "id_column", "language_column", "language", "namespaces"),
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
    "tokenfree.train.sweep.space.recipe",
    "SweepRecipe",
    (
        *("base", "variants", "overrides", "space", "searcher", "scheduler", "objectives", "trials", "seeds"),
        *("budget", "reports", "workers", "gpus_per_worker", "concurrent", "seed"),
    ),
)
IMPORTED = replace(PRETRAINING, command="import", top_keys=("model", "train"), partial=True)
KINDS = (PREPROCESSING, PRETRAINING, FINETUNING, SWEEP)


def kind_of(settings: type) -> RecipeKind:
    """The kind of the recipes that build a settings class, which must be one that recipes build."""
    home = (settings.__module__, settings.__name__)
    return next(kind for kind in KINDS if (kind.module, kind.settings) == home)


def expect(kind: RecipeKind, mapping: Mapping[str, Any], recipe: str) -> None:
    """Refuse the mapping of a recipe that is of another kind: one that knows more of its keys.

    Raises:
        UserError: naming the kind, and the command that reads it.
    """
    known = {each: len({BASE.name, *each.top_keys} & mapping.keys()) for each in KINDS}
    other = max(KINDS, key=lambda each: known[each])
    if known[other] > known[kind]:
        hint = " (a sweep names it as its base)" if kind == SWEEP and other in (PRETRAINING, FINETUNING) else ""
        raise UserError(
            f"recipe {recipe}: a {other.title}, where a {kind.title} is expected; run tokenfree {other.command} "
            f"{recipe}{hint}"
        )
