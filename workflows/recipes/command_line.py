"""What a command lays over its recipe: `--config`, then keys given as options, then options of its own."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from tokenfree.preprocess.common.settings import build, merge, nest
from tokenfree.workflows.recipes.library import read, read_based

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The positional RECIPE and `--config`; keys of the recipe are options too (`--model.trunk.layers 4`)."""
    shown = "a recipe's name or YAML file"
    parser.add_argument("recipe", metavar="RECIPE", nargs="?" if optional else None, help=shown)
    parser.add_argument("--config", metavar="FILE", help="YAML laid over the recipe; any key may follow as --KEY VALUE")


def keys(cls: Any) -> list[str]:
    """The top-level keys of a recipe of the settings `cls`, a dataclass."""
    return [field.name for field in fields(cls)]


def resolve(recipe: str | None, config_file: str | None, overrides: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The recipe, then `--config`, then the dotted overrides (key, value as written), laid over each other.

    Raises:
        UserError: a file cannot be read as a recipe, or an override contradicts another.
    """
    mapping = read(recipe) if recipe else {}
    if config_file:
        mapping = merge(mapping, read(config_file))
    return merge(mapping, nest(overrides))


def load(cls: type[T], args: argparse.Namespace, **options: Any) -> T:
    """Build `cls` from the command's RECIPE, `--config`, overrides, and `options` (those that are not None).

    Raises:
        UserError: a file cannot be read as a recipe, or keys or values do not fit `cls`; all of them are named.
    """
    mapping = resolve(args.recipe, args.config, args.overrides)
    if "base" in mapping and "base" not in keys(cls):
        mapping = merge(read_based(mapping.pop("base")), mapping)
    mapping = merge(mapping, {key: value for key, value in options.items() if value is not None})
    given = args.recipe or args.config
    return build(cls, mapping, source=f"recipe {given}" if given else "options")
