"""Finds the inputs of a job, cuts them into input splits, reading no more than heads and indexes, and reads one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, InputSplit, Page
from tokenfree.preprocess.sources import books, wikipedia
from tokenfree.preprocess.sources import tables as hf
from tokenfree.preprocess.sources.files import LANGUAGE_TAG, InputFile, hash_file_input, list_inputs
from tokenfree.preprocess.sources.tables import TableColumns
from tokenfree.preprocess.sources.wikipedia import is_dump_name, split_dump


@dataclass(frozen=True)
class Inputs:
    """All that a job is to read, each kind sorted by path."""

    wikipedia: Sequence[InputFile]
    books: Sequence[InputFile]
    datasets: Sequence[InputFile]

    def __iter__(self) -> Iterator[InputFile]:
        yield from (*self.wikipedia, *self.books, *self.datasets)


def find_inputs(config: PreprocessConfig, output: str | None = None, notice: Callable[[str], None] = print) -> Inputs:
    """What the paths of the config stand for, told by names, sizes and times: nothing is read.

    What lies in the directory `output`, such as failed pages, is left out of folders and globs around it; `notice` is
    told in a line of links that lead nowhere.

    Raises:
        UserError: a path stands for no file, a dump is given as a book, or there is no such language tag or dataset.
    """
    for key, tag in [("language", config.language), *(("filters.languages", tag) for tag in config.filters.languages)]:
        if tag is not None and not LANGUAGE_TAG.fullmatch(tag):
            raise UserError(f"{key}: {tag!r} is no language tag (BCP 47); give one such as en or zh-Hant")
    if not config.wikipedia and not config.books and not config.hf_dataset:
        raise UserError("no input: give wikipedia (dumps), books (files or folders) or hf_dataset")
    found = list_inputs(config.wikipedia, "wikipedia", is_dump_name, output, notice)
    files = list_inputs(config.books, "books", books.is_book_name, output, notice)
    for file in files:
        if "wiki" in file.name and is_dump_name(file.name) and not books.is_book_name(file.name):
            raise UserError(f"books: {file.path} is named like a Wikipedia dump; give it to wikipedia")
        books.check_book_name(file)
    return Inputs(found, files, hf.list_datasets(config.hf_dataset))


def plan_splits(config: PreprocessConfig, inputs: Inputs | None = None) -> list[InputSplit]:
    """The input splits of all inputs (by default those that `find_inputs` finds), sorted by input and offset: the same
    for any order of the inputs.

    Raises:
        UserError: as `find_inputs`; a file is no dump; a table cannot be read or has no such columns; there is
            nothing in the inputs.
    """
    inputs = inputs or find_inputs(config)
    splits: list[InputSplit] = []
    for file in inputs.wikipedia:
        splits += split_dump(file, config.language, config.split_bytes)
    columns = TableColumns.of(config)
    splits += books.split_books(inputs.books, columns, config.language, config.split_bytes)
    for file in inputs.datasets:
        splits += hf.split_dataset(file, columns, config.language, config.split_bytes)
    if not splits:
        raise UserError("the inputs are empty: there is not one row in them; check what wrote them")
    return splits


def hash_input(file: InputFile) -> tuple[int, str]:
    """Size in bytes and SHA-256 (hex) of what an input holds.

    Raises:
        OSError: it cannot be read.
        UserError: it is a dataset that is not there any more.
        JobError: it changed since it was found, or meanwhile.
    """
    if file.path.startswith(hf.SCHEME):
        return hf.hash_dataset(file.path.removeprefix(hf.SCHEME))
    return hash_file_input(file)


def read_split(split: InputSplit) -> Iterator[Page | Failure]:
    """The pages or books of a split, in order, streamed; what it holds and cannot be read comes as a failure.

    Raises:
        OSError: an input cannot be opened or read.
        UserError: a dataset is not there any more.
    """
    return wikipedia.read_pages(split) if split.kind == "wikipedia" else books.read_books(split)
