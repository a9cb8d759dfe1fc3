"""The data directories of the queue, made by `tokenfree preprocess` where they are absent: pages and books in English.

They differ only in the length of their windows, and hold the same documents and the same 2,000 subwords.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning.children import call
from tokenfree.preprocess.common.errors import UserError

DIRECTORIES = {"en": 508, "en-short": 236}  # the most characters of a window
DUMP, BOOKS = "wiki-dumps/enwiki-2016-shortened.xml.bz2", "books/en"
VARIABLE = "TOKENFREE_TEST_DATA"


def prepare(folder: Path, names: Sequence[str], logs: Path) -> None:
    """Make those of the directories `names` that `folder` lacks; one that was begun goes on.

    Raises:
        UserError: the inputs are not there.
        JobError: preprocessing failed.
    """
    for name in names:
        if not (folder / name / "_SUCCESS").exists():
            call(arguments(name, folder, source()), logs / f"data-{name}.log")


def arguments(name: str, folder: Path | str, inputs: Path | str) -> list[str]:
    """The arguments of `tokenfree` that make a data directory."""
    return [
        *("preprocess", "--wikipedia", f"{inputs}/{DUMP}", "--books", f"{inputs}/{BOOKS}"),
        *("--output", f"{folder}/{name}", "--workers", "1"),
        *("--window.max_characters", str(DIRECTORIES[name]), "--vocabulary.size", "2000"),
    ]


def source() -> Path:
    """The folder of the inputs.

    Raises:
        UserError: it is not named, or holds no such dump or books.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise UserError(f"{VARIABLE} is not set; let it name the folder with {DUMP} and {BOOKS}, or give --data")
    for name in (DUMP, BOOKS):
        if not (Path(folder) / name).exists():
            raise UserError(f"{VARIABLE}={folder}: no {name} in it; name the folder that has it, or give --data")
    return Path(folder)


def subwords_per_character(directory: Path) -> float:
    """How many subwords of the vocabulary a character is worth, over the whole data directory."""
    counters = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))["counters"]
    return counters["subwords"] / counters["characters"]
