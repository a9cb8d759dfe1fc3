"""The keys of a recipe as `--help-keys` prints them: in a terminal for reading, in a pipe for grep and cut."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from tokenfree.workflows.recipes.keys import Key, KeyGroup, chosen
from tokenfree.workflows.recipes.kinds import RecipeKind

_LEAST, _MOST = 40, 100  # columns


class HelpKeys(argparse.Action):
    """Prints the keys of recipes of a kind and ends the command, as `--help` does: nothing else is needed."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, kind: RecipeKind, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs="?", metavar="PREFIX", **options)
        self.kind = kind

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """See `argparse.Action`.

        Raises:
            UserError: no key begins with the prefix.
        """
        groups = chosen(self.kind.groups(), str(values or ""))
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(lines(groups) if width is None else paragraphs(groups, width)), flush=True)
        parser.exit()


def lines(groups: Sequence[KeyGroup]) -> Iterator[str]:
    """A line for each key: name, part that has it, type, default and meaning, with tabs between."""
    for group in groups:
        for key in group.keys:
            yield "\t".join([key.name, group.part or "", key.type, _default(key), key.meaning])


def paragraphs(groups: Sequence[KeyGroup], width: int) -> Iterator[str]:
    """Lines of at most `width` columns, but for names that are longer: a paragraph for each group and each key."""
    width = min(max(width, _LEAST), _MOST)
    for number, group in enumerate(groups):
        if number:
            yield ""
        yield from _wrapped(_title(group), width)
        for key in group.keys:
            yield from _wrapped(f"  {key.name}  {key.type}, {_default(key)}", width, 6)
            yield from _wrapped(f"      {key.meaning}", width, 6)


def _title(group: KeyGroup) -> str:
    if group.part is not None:
        return f"{group.name}.name: {group.part} - {group.meaning}"
    return f"{group.name}: {group.meaning}" if group.name else group.meaning


def _default(key: Key) -> str:
    return "required" if key.default is None else f"default {key.default}"


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
