"""Cuts the inputs of a job into splits, reading no more of them than heads and indexes, and reads one split."""

from __future__ import annotations

from collections.abc import Iterator

from preprocess.config import PreprocessConfig
from preprocess.document import Failure
from preprocess.errors import UserError
from preprocess.sources import books, dumps, wikipedia
from preprocess.sources.files import list_inputs
from preprocess.sources.records import Page, Split


def plan_splits(config: PreprocessConfig) -> list[Split]:
    """The splits of all inputs, sorted by input and place: the same for any order of the inputs.

    Raises UserError, one line, for a path without files and for a file that is no dump (books are judged when read).
    """
    if not config.wikipedia and not config.books:
        raise UserError("no input: give wikipedia (dumps) or books (files or folders)")
    splits: list[Split] = []
    for file in list_inputs(config.wikipedia, "wikipedia", dumps.is_dump_name):
        splits += dumps.split_dump(file, config.language, config.split_bytes)
    files = list_inputs(config.books, "books", books.is_book_name)
    return splits + books.split_books(files, config.language, config.split_bytes)


def read_split(split: Split) -> Iterator[Page | Failure]:
    """The pages or books of a split, in order, streamed; what cannot be read comes as a failure with its reason.

    Raises OSError where an input cannot be opened or read; never over what it holds.
    """
    return wikipedia.read_pages(split) if split.kind == "wikipedia" else books.read_books(split)
