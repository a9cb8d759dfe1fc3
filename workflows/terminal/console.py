"""Where commands print their tables: as wide as a terminal, and as wide as need be in a pipe or a file."""

from __future__ import annotations

import sys

from rich.console import Console

_PIPE = 1_000_000  # columns: nothing that is to be read by a program is ever wrapped


def console() -> Console:
    """Standard output as rich prints to it; numbers and paths stay as they are, without colours of their own."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE)
