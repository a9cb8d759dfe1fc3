"""A terminal for the tests of what is drawn."""

import io
import os
import re
from collections.abc import Callable

import pytest


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """The lines that it shows, after its control sequences; fails on one that it does not know."""
        lines, row = [""], 0
        for part in re.findall(r"\x1b\[[?\d]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", self.getvalue()):
            if part == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif part == "\x1b[1A":
                row -= 1
                assert row >= 0
            elif part == "\x1b[2K":
                lines[row] = ""
            elif part != "\r":
                assert part[0] != "\x1b", part
                lines[row] += part
        return lines


@pytest.fixture
def resize(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Makes the terminal that large; at first it is 12 by 5, whatever the environment of the tests says."""
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def resize(columns: int, lines: int) -> None:
        monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, lines)))

    resize(12, 5)
    return resize


@pytest.fixture
def wide(resize: Callable[[int, int], None]) -> None:
    """Makes the terminal 80 by 24."""
    resize(80, 24)
