"""What a command lays over its recipe: `--config`, then keys given as options, then options of its own."""

import argparse
from collections.abc import Sequence
from typing import Any, TypeVar

from tokenfree.preprocess.common.settings import Draft, build, draft, merge, nest
from tokenfree.workflows.recipes.key_lines import HelpKeys
from tokenfree.workflows.recipes.kinds import RecipeKind, kind_of
from tokenfree.workflows.recipes.library import check_kind, read, read_based

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser, kind: RecipeKind, *, optional: bool = False) -> None:
    """The positional RECIPE, `--config` and `--help-keys`; keys are options too (`--model.trunk.layers 4`)."""
    shown = "a recipe's name or YAML file"
    parser.add_argument("recipe", metavar="RECIPE", nargs="?" if optional else None, help=shown)
    parser.add_argument("--config", metavar="FILE", help="YAML laid over the recipe; any key may follow as --KEY VALUE")
    add_help_keys(parser, kind)


def add_help_keys(parser: argparse.ArgumentParser, kind: RecipeKind) -> None:
    """The option `--help-keys`."""
    shown = "list the keys, of a PREFIX such as model.trunk only, and exit; plain lines where the output is a pipe"
    parser.add_argument("--help-keys", action=HelpKeys, kind=kind, help=shown)


def resolve(recipe: str | None, config_file: str | None, overrides: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The recipe, then `--config`, then the dotted overrides (key, value as written), laid over each other.

    Raises:
        UserError: a file cannot be read as a recipe, or an override contradicts another.
    """
    mapping = {} if recipe is None else read(recipe)
    if config_file is not None:
        mapping = merge(mapping, read(config_file))
    return merge(mapping, nest(overrides))


def mapping_of(kind: RecipeKind, args: argparse.Namespace, **options: Any) -> dict[str, Any]:
    """The mapping of the command's RECIPE, `--config`, overrides, and `options` (those that are not None).

    Raises:
        UserError: a file cannot be read as a recipe, or it is one of another kind; or an override contradicts another.
    """
    for given in (each for each in (args.recipe, args.config) if each is not None):
        check_kind(kind, given)
    mapping = resolve(args.recipe, args.config, args.overrides)
    if "base" in mapping and "base" not in kind.top_keys:
        mapping = merge(read_based(mapping.pop("base")), mapping)
    return merge(mapping, {key: value for key, value in options.items() if value is not None})


def source(args: argparse.Namespace) -> str:
    """What messages call the settings of a command."""
    given = args.recipe or args.config
    return f"recipe {given}" if given else "options"


def drafted(cls: type[T], args: argparse.Namespace, **options: Any) -> Draft[T]:
    """The settings `cls` of the command's RECIPE, `--config`, overrides, and `options`, with all their problems.

    Raises:
        UserError: see `mapping_of`.
    """
    return draft(cls, mapping_of(kind_of(cls), args, **options))


def load(cls: type[T], args: argparse.Namespace, **options: Any) -> T:
    """Build `cls` from the command's RECIPE, `--config`, overrides, and `options` (those that are not None).

    Raises:
        UserError: see `mapping_of`; or keys or values do not fit `cls`, all of which are named.
    """
    return build(cls, mapping_of(kind_of(cls), args, **options), source=source(args))
