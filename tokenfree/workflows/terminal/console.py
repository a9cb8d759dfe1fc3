"""How rich prints: as wide as a terminal, as wide as need be in a pipe or a file, and nothing that came from outside
moves the cursor or is taken for markup."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from tokenfree.preprocess.common.printable import printable

_PIPE = 1_000_000  # columns: nothing that is to be read by a program is ever wrapped


class PlainConsole(Console):
    """A console of rich whose strings are text, without markup, emoji names or control characters.

    Args:
        stream: where it prints.
        width: columns; by default those of the terminal.
    """

    def __init__(self, stream: TextIO, width: int | None = None) -> None:
        super().__init__(file=stream, width=width, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """The string as text, made printable before it is measured."""
        return super().render_str(printable(text), **{**options, "markup": False})

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """The segments of anything that can be printed, printable but for those that move the cursor."""
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console() -> PlainConsole:
    """Standard output; numbers and paths stay as they are, without colours of their own."""
    return PlainConsole(sys.stdout, None if sys.stdout.isatty() else _PIPE)
