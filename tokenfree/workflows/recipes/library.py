"""Recipes: where they are found, and how the options of a command change them.

The recipes of tokenfree are the files in `bases`, one recipe each, and the entries of the files in
`variants`, one file per family. A blank line ends an entry. The comment above an entry belongs to it.
"""

import argparse
import difflib
import functools
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.core.settings import build, merge, nest, override
from tokenfree.core.settings_values import code_hashes
from tokenfree.core.stored_files import check_finished
from tokenfree.core.yaml_text import parse_yaml
from tokenfree.workflows.recipes.keys import BASE
from tokenfree.workflows.recipes.kinds import FINETUNING, KINDS, PRETRAINING, SWEEP, RecipeKind, kind_of

T = TypeVar("T")


FOLDER = Path(__file__).parent
# A pattern finds the entries, because PyYAML drops comments and takes half a second for all files.
_ENTRY = re.compile(r"^((?:#.*\n)+)([\w-]+):\n((?: .*\n)+)", re.MULTILINE)
# Not after the abbreviation "et al", nor in parentheses.
_END = re.compile(r"(?<!\bal)[.:;]\s(?![^()]*\))")


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
    # config.yaml of a run.
    if "manifest" in mapping and isinstance(mapping.get("recipe"), dict):
        return mapping["recipe"]
    return mapping


def read_based(recipe: AnyPath) -> dict[str, Any]:
    """Return a recipe merged over the one that its key `base` names, and so on.

    Raises UserError if that fails.
    """
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
    # The key `base` of a recipe can be any YAML value.
    if not isinstance(recipe, str | os.PathLike):
        raise UserError(f"base: should be the name or file of a recipe, not {recipe!r}")
    recipe = os.fspath(recipe)
    # An unset shell variable.
    if not recipe.strip():
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
    # config.yaml of a run, best.yaml of a sweep.
    check_finished(path.parent, path.name.__eq__)
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
    mapping = {} if recipe is None else read(recipe)
    if config_file is not None:
        mapping = merge(mapping, read(config_file))
    return mapping


def warn_of_lost(keys: Iterable[str]) -> None:
    lost_keys = ", ".join(dict.fromkeys(keys))
    if lost_keys:
        print(
            f"tokenfree: dropped keys of the recipe that the new part does not have: {lost_keys}",
            file=sys.stderr,
        )


def source(args: argparse.Namespace) -> str:
    recipe = args.recipe or args.config
    return f"recipe {recipe}" if recipe else "options"


def load(
    cls: type[T], args: argparse.Namespace, *, recorded: Mapping[str, Any] | None = None, **options: Any
) -> T:
    """Build `cls` from RECIPE, `--config`, overrides, and those `options` that are not None, each over those before.

    `recorded` is the recipe of a run to resume, in place of RECIPE.

    Raises UserError if a file is not a recipe of this kind, or keys or values do not fit `cls`. It names all
    problems.
    """
    kind = kind_of(cls)
    for recipe in filter(None, (args.recipe, args.config)):
        check_kind(kind, recipe)
    mapping = merge(recorded or {}, resolve(args.recipe, args.config))
    if "base" in mapping and "base" not in kind.top_keys:
        mapping = merge(read_based(mapping.pop("base")), mapping)
    mapping, lost = override(cls, mapping, nest(args.overrides))
    warn_of_lost(lost)
    mapping = merge(mapping, {key: value for key, value in options.items() if value is not None})
    return build(cls, mapping, source=source(args))


def trust_of(recipe: Any) -> list[str]:
    """Return the option that commands need to read a run of `recipe`, if it names code outside tokenfree."""
    return ["--trust-code"] if code_hashes(recipe) else []
