"""Recipes: the YAML files of this folder, found by name, and how overrides are laid over them."""

import argparse
import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from preprocess.errors import UserError
from preprocess.settings import build, merge, nest

T = TypeVar("T")
FOLDER = Path(__file__).parent
_END = re.compile(r"(?<!\bal)[.:;]\s(?![^()]*\))")  # of what is no abbreviation and not in parentheses


def names() -> list[str]:
    """The recipes that come with tokenfree."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def about(recipe: str) -> str:
    """What a recipe of this folder is for: the comment that opens it, up to the first full stop or colon."""
    lines = (FOLDER / f"{recipe}.yaml").read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.strip("# ") for line in itertools.takewhile(lambda line: line.startswith("#"), lines))
    return _END.split(comment, maxsplit=1)[0].rstrip(".:;")


def read(recipe: str) -> dict[str, Any]:
    """The mapping of a recipe given by name or by YAML file."""
    path = FOLDER / f"{recipe}.yaml"
    if not path.is_file():
        path = Path(recipe)
    if not path.is_file():
        raise UserError(f"recipe {recipe}: no such file, and no recipe of that name ({_nearest(recipe)})")
    try:
        mapping = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"recipe {recipe}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(mapping, dict):
        raise UserError(f"recipe {recipe}: should be a mapping of keys to values, not {type(mapping).__name__}")
    return mapping


def read_based(recipe: str) -> dict[str, Any]:
    """The mapping of a recipe, laid over the recipe that its key `base` names, and so on down."""
    mapping = read(recipe)
    return merge(read_based(mapping.pop("base")), mapping) if "base" in mapping else mapping


def resolve(recipe: str | None, config_file: str | None, overrides: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The recipe, then `--config`, then the dotted overrides, laid over each other."""
    mapping = read(recipe) if recipe else {}
    if config_file:
        mapping = merge(mapping, read(config_file))
    return merge(mapping, nest(overrides))


def load(cls: type[T], args: argparse.Namespace, **options: Any) -> T:
    """Build `cls` from the command's RECIPE, `--config`, overrides, and `options` (those that are not None)."""
    mapping = resolve(args.recipe, args.config, args.overrides)
    if "base" in mapping and "base" not in keys(cls):
        mapping = merge(read_based(mapping.pop("base")), mapping)
    mapping = merge(mapping, {key: value for key, value in options.items() if value is not None})
    given = args.recipe or args.config
    return build(cls, mapping, source=f"recipe {given}" if given else "options")


def resolve_sweep(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of a sweep with the recipes in place of their names: `base`, and the values of the knob `variant`."""
    mapping = dict(mapping)
    if isinstance(mapping.get("base"), str):
        mapping["base"] = read_based(mapping["base"])
    knob = (mapping.get("space") or {}).get("variant")
    named = [name for kind in ("choice", "grid") for name in (knob or {}).get(kind) or []]
    if named:
        mapping["variants"] = {name: read_based(name) for name in named}
    return mapping


def keys(cls: Any) -> list[str]:
    """The top-level keys of a recipe of the settings `cls`."""
    return [field.name for field in fields(cls)]


def add_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The positional RECIPE and `--config`; keys of the recipe are options too (`--model.trunk.layers 4`)."""
    shown = "a recipe's name or YAML file"
    parser.add_argument("recipe", metavar="RECIPE", nargs="?" if optional else None, help=shown)
    parser.add_argument("--config", metavar="FILE", help="YAML laid over the recipe; any key may follow as --KEY VALUE")


def _nearest(recipe: str) -> str:
    close = difflib.get_close_matches(recipe, names(), n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}All of them: tokenfree model --list"
