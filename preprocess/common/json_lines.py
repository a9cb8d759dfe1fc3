"""Files of JSON lines that grow by appending: a last line without its end is one that a killed process left torn."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file opened for reading bytes, each with its line end; a torn last one is left out."""
    for line in file:
        if line.endswith(b"\n"):
            yield line


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
