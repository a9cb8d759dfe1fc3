"""How anything that changes is drawn in a terminal: lines at its lower end, each time over the last ones, by rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.control import Control
from rich.live_render import LiveRender
from rich.segment import ControlType
from rich.text import Text

from tokenfree.preprocess.common.printable import one_line
from tokenfree.workflows.terminal.console import PlainConsole


class Frame:
    """Lines that are written over the last ones in a single piece, each cut to the terminal's width.

    Unlike `rich.live.Live` it leaves the cursor visible, so that a killed command leaves a terminal as it should be.

    Args:
        stream: is drawn on only where `live` says that it can be.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = PlainConsole(stream)
        self._drawn = LiveRender(Text())  # knows how many lines it has in the terminal
        self._size = self.size
        self.live = stream.isatty() and self._console.is_interactive  # a terminal that can move its cursor

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal as it is now."""
        return self._console.size.width, self._console.size.height

    def draw(self, lines: Sequence[str]) -> None:
        """Write `lines` over those drawn before; the cursor stays at the end of the last one."""
        with self._console:  # in a single piece
            if self.size != self._size:  # the terminal has moved its lines, nobody knows where to
                self._size = self.size
                self._begin_below()
            self._console.print(self._back())
            self._drawn.set_renderable(Text("\n".join(map(one_line, lines)), no_wrap=True, overflow="ellipsis"))
            self._console.print(self._drawn)

    def above(self, text: str) -> None:
        """Write `text`, whole, above the lines that are drawn."""
        with self._console:
            self._console.print(self._back())
            self._console.print(Text(text), soft_wrap=True)
            self._console.print(self._drawn)

    def finish(self, text: str) -> None:
        """Write `text`, whole, in place of what is drawn, and begin below it."""
        with self._console:
            self._console.print(self._back())
            self._console.print(Text(text), soft_wrap=True)
        self._drawn = LiveRender(Text())

    def clear(self) -> None:
        """Take away what is drawn."""
        self._console.control(self._back())
        self._drawn = LiveRender(Text())

    def _begin_below(self) -> None:
        if self._drawn.last_render_height:
            self._console.line()
        self._drawn = LiveRender(Text())

    def _back(self) -> Control:
        """Back to where drawing began, all from there erased; at first, whatever stands in the cursor's line."""
        if self._drawn.last_render_height:
            return self._drawn.position_cursor()
        return Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
