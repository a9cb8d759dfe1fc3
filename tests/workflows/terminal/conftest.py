"""A terminal for the tests of what is drawn."""

import io
import os
from collections.abc import Callable

import pytest


class Terminal(io.StringIO):
    """A terminal that keeps what is written, also piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return super().write(text)


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
