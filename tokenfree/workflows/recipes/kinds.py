"""Kinds of recipes, and the options that a command takes from the keys of one. Only `groups` imports settings."""

import importlib
from dataclasses import dataclass, replace

from tokenfree.workflows.recipes.keys import BASE, KeyGroup, listed


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
            "encoding",
            "expand_templates",
            "templates_from",
            "namespaces",
        ),
        *(
            "window",
            "vocabulary",
            "readers",
            "cleaner",
            "filters",
            "keep_dropped",
            "near_duplicates",
            "columns",
            "shards",
            "shard_characters",
        ),
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
    home = (settings.__module__, settings.__name__)
    return next(kind for kind in KINDS if (kind.module, kind.settings) == home)
