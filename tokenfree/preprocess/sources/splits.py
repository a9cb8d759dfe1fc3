"""Find the inputs of a job and cut them into input splits, from heads and indexes alone; read the pages of a split."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig, Reader
from tokenfree.preprocess.records import Failure, InputSplit, Page
from tokenfree.preprocess.sources import books, wikipedia
from tokenfree.preprocess.sources import tables as hf
from tokenfree.preprocess.sources.files import LANGUAGE_TAG, InputFile, hash_file_input, list_inputs
from tokenfree.preprocess.sources.tables import TableColumns
from tokenfree.preprocess.sources.wikipedia import is_dump_name, split_dump


@dataclass(frozen=True)
class Inputs:
    """All inputs of a job, each kind sorted by path."""

    wikipedia: Sequence[InputFile]
    books: Sequence[InputFile]
    datasets: Sequence[InputFile]
    templates: Sequence[InputFile] = ()  # read for their templates only

    def __iter__(self) -> Iterator[InputFile]:
        yield from (*self.wikipedia, *self.books, *self.datasets, *self.templates)


def find_inputs(config: PreprocessConfig, output: str | None = None) -> Inputs:
    """Return the inputs that the paths of the config stand for, outside the directory `output`.

    Reads no content.

    Raises UserError if a path stands for no file, a dump is given as a book, a language tag is invalid, or a
    step that the config adds is invalid or not trusted.
    """
    for key, tag in [
        ("language", config.language),
        *(("filters.languages", tag) for tag in config.filters.languages),
    ]:
        if tag is not None and not LANGUAGE_TAG.fullmatch(tag):
            raise UserError(f"{key}: {tag!r} is not a language tag (BCP 47); give one such as en or zh-Hant")
    if not config.wikipedia and not config.books and not config.hf_dataset:
        raise UserError("no input: give wikipedia (dumps), books (files or folders) or hf_dataset")
    dumps = list_inputs(config.wikipedia, "wikipedia", is_dump_name, output)
    suffixes = books.suffixes_of(config)
    files = list_inputs(
        config.books, "books", lambda name: name.endswith(suffixes) or books.is_book_name(name), output
    )
    for file in files:
        if file.name.endswith(suffixes):
            continue
        if "wiki" in file.name and is_dump_name(file.name) and not books.is_book_name(file.name):
            raise UserError(f"books: {file.path} is named like a Wikipedia dump; give it to wikipedia")
        books.check_book_name(file)
    templates: list[InputFile] = []
    if config.expand_templates and config.templates_from:
        paths = {file.path for file in dumps}
        listed = list_inputs(config.templates_from, "templates_from", is_dump_name, output)
        templates = [file for file in listed if file.path not in paths]
    return Inputs(dumps, files, hf.list_datasets(config.hf_dataset), templates)


def plan_splits(config: PreprocessConfig, inputs: Inputs | None = None) -> list[InputSplit]:
    """Return the input splits of all inputs (by default of `find_inputs`), sorted by input and offset.

    Raises UserError if a file is not a dump, a table is unreadable or lacks a column, or all inputs are
    empty.
    """
    inputs = inputs or find_inputs(config)
    columns = TableColumns.of(config)
    splits = [
        *(
            split
            for file in inputs.wikipedia
            for split in split_dump(file, config.language, config.split_bytes)
        ),
        *books.split_books(inputs.books, columns, config),
        *(
            split
            for file in inputs.datasets
            for split in hf.split_dataset(file, columns, config.language, config.split_bytes)
        ),
    ]
    if not splits:
        raise UserError("the inputs are empty: there is not one row in them; check what wrote them")
    return splits


def plan_template_splits(
    config: PreprocessConfig, inputs: Inputs, splits: Sequence[InputSplit]
) -> list[InputSplit]:
    """Return the parts of dumps from which templates are collected: of all dumps of the job, and of `templates_from`.

    Raises UserError if a file is not a dump.
    """
    if not config.expand_templates or config.cleaner is not None:
        return []
    parts = [split for split in splits if split.kind == "wikipedia"]
    for file in inputs.templates:
        parts += split_dump(file, config.language, config.split_bytes)
    return parts


def hash_input(file: InputFile) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 (hex) of the content of an input, which may be a dataset.

    Raises OSError if it cannot be read, and JobError if it changed since it was found or while it was read.
    """
    if file.path.startswith(hf.SCHEME):
        return hf.hash_dataset(file.path.removeprefix(hf.SCHEME))
    return hash_file_input(file)


def read_split(split: InputSplit, readers: Sequence[Reader] = ()) -> Iterator[Page | Failure]:
    """Yield the pages or books of a split, in order, and failures. `readers` are those that the job adds.

    Raises OSError if an input cannot be read.
    """
    return wikipedia.read_pages(split) if split.kind == "wikipedia" else books.read_books(split, readers)
