"""Find recipes by name or file, and read them.

The recipes of tokenfree are the files in `bases`, one recipe each, and the entries of the files in `variants`, one file
per family. A blank line ends an entry. The comment above an entry belongs to it.
"""

import difflib
import functools
import itertools
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.keys import FINETUNING, PRETRAINING, RecipeKind, expect

FOLDER = Path(__file__).parent
# A pattern finds the entries, because PyYAML drops comments and takes half a second for all files.
_ENTRY = re.compile(r"^((?:#.*\n)+)([\w-]+):\n((?: .*\n)+)", re.MULTILINE)
_END = re.compile(r"(?<!\bal)[.:;]\s(?![^()]*\))")  # not after the abbreviation "et al", nor in parentheses


def names() -> list[str]:
    """Return the names of the recipes of tokenfree, in alphabetical order."""
    return sorted(_library())


def about(recipe: str) -> str:
    """Return a description of a recipe: its opening comment up to the first full stop, colon or semicolon."""
    comment = " ".join(line.strip("# ") for line in _comment(_library()[recipe]).splitlines())
    return _END.split(comment, maxsplit=1)[0].rstrip(".:;")


def read(recipe: str) -> dict[str, Any]:
    """Return the mapping of a recipe, given by name, file or a run's config.yaml. Raises UserError if there is none."""
    try:
        mapping = yaml.safe_load(_text(recipe)) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"recipe {recipe}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(mapping, dict):
        raise UserError(f"recipe {recipe}: should be a mapping of keys to values, not {type(mapping).__name__}")
    if "manifest" in mapping and isinstance(mapping.get("recipe"), dict):  # config.yaml of a run
        return mapping["recipe"]
    return mapping


def read_based(recipe: str) -> dict[str, Any]:
    """Return a recipe merged over the one that its key `base` names, and so on. Raises UserError if that fails."""
    from tokenfree.core.settings import merge

    layers, seen = [read(recipe)], [recipe]
    while "base" in layers[-1]:
        base = layers[-1].pop("base")
        if base in seen:
            raise UserError(f"recipe {recipe}: base: {' -> '.join([*seen, str(base)])} goes round in a circle")
        seen.append(base)
        layers.append(read(base))
    return functools.reduce(merge, reversed(layers))


def resolved_text(recipe: str) -> str:
    """Return the YAML of a recipe merged over its bases, with its comment. A sweep keeps the name of its base."""
    mapping = read(recipe)
    if "space" not in mapping:
        mapping = read_based(recipe)
    text = yaml.safe_dump(mapping, default_flow_style=None, sort_keys=False, allow_unicode=True, width=120)
    return _comment(_text(recipe)) + text


def resolve_sweep(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a sweep with names of recipes replaced by their mappings.

    The names are `base` and the values of `variant`. If the base is a fine-tuning recipe, missing keys get the defaults
    for a sweep of a task. Raises UserError if a named recipe cannot be read, or is of another kind.
    """
    from tokenfree.core.settings import value_at
    from tokenfree.train.sweep.recipe import with_task_defaults, without_removed  # takes seconds to import

    mapping = without_removed(mapping)
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
        raise UserError(f"recipe {recipe}: a sweep recipe, which cannot be inside a sweep. Name one of a single model.")
    check_kind(FINETUNING if "task" in mapping else PRETRAINING, recipe)
    return mapping


def check_kind(kind: RecipeKind, recipe: str) -> None:
    """Raise UserError if a recipe is of another kind. One that only names its base has the kind of the base."""
    mapping, seen = read(recipe), {recipe}
    while set(mapping) == {"base"} and isinstance(mapping["base"], str) and mapping["base"] not in seen:
        seen.add(mapping["base"])
        mapping = read(mapping["base"])
    expect(kind, mapping, recipe)


def _text(recipe: str) -> str:
    """Return the YAML of a recipe as it is in its file. Raises UserError if there is none."""
    if not isinstance(recipe, str):  # the key `base` of a recipe can be any YAML value
        raise UserError(f"base: should be the name or file of a recipe, not {recipe!r}")
    if not recipe.strip():  # an unset shell variable
        raise UserError(f"a recipe has an empty name; give a file or a name ({_nearest('')})")
    if recipe in _library():
        return _library()[recipe]
    path = Path(recipe)
    if path.exists() and not path.is_file():
        raise UserError(f"recipe {recipe}: is not a file, but a folder, pipe or device; save it as a file first")
    if not path.is_file():
        raise UserError(f"recipe {recipe}: no such file, and no recipe of that name ({_nearest(recipe)})")
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
