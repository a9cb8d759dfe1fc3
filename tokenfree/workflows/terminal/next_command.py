"""The last line of a command: what one would type next."""

from __future__ import annotations

import shlex

_PLACEHOLDERS = {"DIR", "NEW_DIRECTORY", "RECIPE", "RUN"}  # for what only the user knows; not quoted


def next_command(*arguments: str, program: str = "tokenfree") -> str:
    """The line that names `PROGRAM ARGUMENTS` as the next command, quoted as a shell needs it."""
    words = [word if word in _PLACEHOLDERS else shlex.quote(word) for word in arguments]
    return f"  next        {program} {' '.join(words)}"
