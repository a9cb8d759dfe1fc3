"""The data directories of the queue, made by `tokenfree preprocess` where they are absent.

`en` and `en-short` are pages and books in English, the same documents in longer and in shorter windows. `ja-short` are
pages in Japanese, which sets no spaces: any two characters that follow each other can be hidden, and what stands around
them tells much of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning.children import call
from tokenfree.preprocess.common.errors import UserError

VARIABLE = "TOKENFREE_TEST_DATA"


@dataclass(frozen=True)
class Source:
    """What a data directory is made of: a dump and books, relative to the folder of the inputs, the most characters of
    a window, and the size of the vocabulary."""

    dump: str
    books: str | None
    max_characters: int
    vocabulary: int = 2000

    @property
    def paths(self) -> list[str]:
        """All inputs."""
        return [self.dump] if self.books is None else [self.dump, self.books]


ENGLISH, BOOKS = "wiki-dumps/enwiki-2016-shortened.xml.bz2", "books/en"
JAPANESE = "wiki-dumps/jawiki-20230501-excerpt.xml.bz2"
DIRECTORIES = {
    "en": Source(ENGLISH, BOOKS, 508),
    "en-short": Source(ENGLISH, BOOKS, 236),
    "ja-short": Source(JAPANESE, None, 236, vocabulary=4000),  # it has more characters than 2,000
}


def prepare(folder: Path, names: Sequence[str], logs: Path) -> None:
    """Make those of the directories `names` that `folder` lacks; one that was begun goes on.

    Raises:
        UserError: the inputs are not there.
        JobError: preprocessing failed.
    """
    for name in names:
        if not (folder / name / "_SUCCESS").exists():
            call(arguments(name, folder, inputs(name)), logs / f"data-{name}.log")


def arguments(name: str, folder: Path | str, inputs: Path | str) -> list[str]:
    """The arguments of `tokenfree` that make a data directory."""
    source = DIRECTORIES[name]
    books = [] if source.books is None else ["--books", f"{inputs}/{source.books}"]
    return [
        *("preprocess", "--wikipedia", f"{inputs}/{source.dump}", *books),
        *("--output", f"{folder}/{name}", "--workers", "1"),
        *("--window.max_characters", str(source.max_characters), "--vocabulary.size", str(source.vocabulary)),
    ]


def inputs(name: str) -> Path:
    """The folder of the inputs, which has those of the data directory `name`.

    Raises:
        UserError: it is not named, or holds no such dump or books.
    """
    folder = os.environ.get(VARIABLE)
    paths = DIRECTORIES[name].paths
    if not folder:
        raise UserError(f"{VARIABLE} is not set; let it name the folder with {' and '.join(paths)}, or give --data")
    for path in paths:
        if not (Path(folder) / path).exists():
            raise UserError(f"{VARIABLE}={folder}: no {path} in it; name the folder that has it, or give --data")
    return Path(folder)


def subwords_per_character(directory: Path) -> float:
    """How many subwords of the vocabulary a character is worth, over the whole data directory."""
    counters = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))["counters"]
    return counters["subwords"] / counters["characters"]
