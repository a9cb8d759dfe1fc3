"""The kinds of recipes: which settings each builds and which command reads it. A recipe of another kind is named so."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.workflows.recipes.keys import Key, KeyGroup, listed
from tokenfree.workflows.recipes.settings_source import twin

BASE = Key("base", "text", "null", "in a file: the recipe that this one is laid over, by its name or file.")


@dataclass(frozen=True)
class RecipeKind:
    """Recipes that build the same settings.

    Attributes:
        title: what messages call such a recipe.
        command: that reads it, of `tokenfree`.
        module: where its settings class is.
        settings: the name of that class.
        only: the top-level keys that may be set, where not all may, and files have no part in it.
    """

    title: str
    command: str
    module: str
    settings: str
    only: tuple[str, ...] = ()

    def twin(self) -> type:
        """The settings class, as its source tells."""
        return twin(self.module, self.settings)

    def top_keys(self) -> list[str]:
        """The top-level keys, which are options of the command too."""
        names = [field.name for field in fields(self.twin())]
        return [name for name in names if name in self.only or not self.only]

    def groups(self) -> list[KeyGroup]:
        """All keys, those that only files have too."""
        tops, groups = self.top_keys(), listed(self.twin())
        if self.only:
            return [group for group in groups if group.name.split(".")[0] in tops]
        if BASE.name in tops:
            return groups
        return [replace(groups[0], keys=(BASE, *groups[0].keys)), *groups[1:]]


PREPROCESSING = RecipeKind("preprocessing recipe", "preprocess", "tokenfree.preprocess.config", "PreprocessConfig")
PRETRAINING = RecipeKind("pretraining recipe", "pretrain", "tokenfree.train.config", "PretrainRecipe")
SWEEP = RecipeKind("sweep recipe", "sweep", "tokenfree.train.sweep.space.recipe", "SweepRecipe")
IMPORTED = replace(PRETRAINING, command="import", only=("model", "train"))
KINDS = (PREPROCESSING, PRETRAINING, SWEEP)


def kind_of(settings: type) -> RecipeKind:
    """The kind of the recipes that build a settings class, which must be one that recipes build."""
    home = (settings.__module__, settings.__name__)
    return next(kind for kind in KINDS if (kind.module, kind.settings) == home)


def expect(kind: RecipeKind, mapping: Mapping[str, Any], recipe: str) -> None:
    """Refuse the mapping of a recipe that is of another kind: one that knows more of its keys.

    Raises:
        UserError: naming the kind, and the command that reads it.
    """
    known = {each: len(_known(each) & mapping.keys()) for each in KINDS}
    other = max(KINDS, key=lambda each: known[each])
    if known[other] > known[kind]:
        hint = " (a sweep names it as its base)" if (kind, other) == (SWEEP, PRETRAINING) else ""
        raise UserError(
            f"recipe {recipe}: a {other.title}, where a {kind.title} is expected; run tokenfree {other.command} "
            f"{recipe}{hint}"
        )


@functools.cache
def _known(kind: RecipeKind) -> frozenset[str]:
    return frozenset([BASE.name, *kind.top_keys()])
