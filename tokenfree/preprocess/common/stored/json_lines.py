"""Files of JSON lines that grow by appending: a last line without its end is one that a killed process left torn."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

BLOCK_BYTES = 1 << 16


def whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file opened for reading bytes, each with its line end; a torn last one is left out."""
    for line in file:
        if line.endswith(b"\n"):
            yield line


def cut_torn_line(path: Path) -> None:
    """Cut off a torn last line in place, so that the next line does not join it; nothing where there is no file."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end, found = size, 0
        while end and not found:  # back by blocks: the file may be long
            start = max(0, end - BLOCK_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n") + 1
            end = start + found
        if end < size:
            file.truncate(end)


def json_lines(file: Iterable[bytes]) -> Iterator[Any]:
    """The values of the whole lines of a file opened for reading bytes.

    Raises:
        ValueError: a whole line is not JSON.
    """
    for line in whole_lines(file):
        yield json.loads(line)


def read_json_lines(path: Path) -> list[Any]:
    """The values of the whole lines of a file; none where there is no file.

    Raises:
        ValueError: a whole line is not JSON.
    """
    try:
        with path.open("rb") as file:
            return list(json_lines(file))
    except FileNotFoundError:
        return []
