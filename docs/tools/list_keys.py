"""Writes docs/keys.md from the settings classes: `python -m docs.tools.list_keys` after a key or a part has changed."""

import re
from collections.abc import Iterator

from tests.conftest import REPOSITORY
from tokenfree.workflows.recipes.keys import KINDS, Key, KeyGroup, RecipeKind

PAGE = REPOSITORY / "docs" / "keys.md"
HEAD = """\
# Keys

Every key of every recipe, as `--help-keys` lists them: `tokenfree pretrain --help-keys model.trunk` shows those that
begin with `model.trunk`. A key is set in a recipe, in a file given with `--config`, or as an option
(`--train.learning_rate 0.002`, and `--train.learning-rate` is the same). A key that ends in `.name` chooses a part; the
keys of each part stand under its name.

This page is written by `python -m docs.tools.list_keys`.
"""


def page() -> str:
    """The page as Markdown: a table for each mapping of a recipe, and for each part that has keys of its own."""
    return HEAD + "".join(f"\n{block}\n" for kind in KINDS for block in _blocks(kind))


def _blocks(kind: RecipeKind) -> Iterator[str]:
    yield f"## `tokenfree {kind.command}`"
    for group in kind.groups():
        if group.name:
            yield f"### `{group.name}`" if group.part is None else f"#### `{group.name}.name: {group.part}`"
        yield group.meaning
        if group.keys:
            yield _table(group)


def _table(group: KeyGroup) -> str:
    rows = [_row(key) for key in group.keys]
    return "\n".join(["| key | type | default | what |", "|---|---|---|---|", *rows])


def _row(key: Key) -> str:
    default = "required" if key.default is None else f"`{key.default}`"
    cells = [f"`{key.name}`", re.sub(r"[*\[\]]", r"\\\g<0>", key.type), default, key.meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
