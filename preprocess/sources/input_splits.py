"""Cuts the inputs of a job into splits, reading no more of them than heads and indexes, and reads one split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preprocess.config import PreprocessConfig
from preprocess.document import Failure
from preprocess.errors import UserError
from preprocess.sources import books, dumps, hf, wikipedia
from preprocess.sources.files import hash_file, list_inputs
from preprocess.sources.languages import LANGUAGE_TAG
from preprocess.sources.records import Page, Split


def plan_splits(config: PreprocessConfig) -> list[Split]:
    """The splits of all inputs, sorted by input and place: the same for any order of the inputs.

    Raises UserError, one line, for a path without files and for a file that is no dump (books are judged when read).
    """
    if config.language is not None and not LANGUAGE_TAG.fullmatch(config.language):
        raise UserError(f"language: {config.language!r} is no language tag (BCP 47); give one such as en or zh-Hant")
    if not config.wikipedia and not config.books and not config.hf_dataset:
        raise UserError("no input: give wikipedia (dumps), books (files or folders) or hf_dataset")
    splits: list[Split] = []
    for file in list_inputs(config.wikipedia, "wikipedia", dumps.is_dump_name):
        splits += dumps.split_dump(file, config.language, config.split_bytes)
    files = list_inputs(config.books, "books", books.is_book_name)
    for file in files:
        if "wiki" in file.name and dumps.is_dump_name(file.name) and not books.is_book_name(file.name):
            raise UserError(f"books: {file.path} is named like a Wikipedia dump; give it to wikipedia")
    splits += books.split_books(files, config.language, config.split_bytes)
    splits += hf.split_datasets(config.hf_dataset, config.text_column, config.language, config.split_bytes)
    if not splits:
        raise UserError("the inputs are empty: there is not one row in them; check what wrote them")
    return splits


def hash_inputs(inputs: Iterable[str]) -> list[dict[str, str | int]]:
    """Path, size in bytes and SHA-256 of each input of the splits, each once and sorted by path."""
    hashes: list[dict[str, str | int]] = []
    for path in sorted(set(inputs)):
        is_dataset = path.startswith(hf.SCHEME)
        size, sha256 = hf.hash_dataset(path.removeprefix(hf.SCHEME)) if is_dataset else hash_file(path)
        hashes.append({"path": path, "size": size, "sha256": sha256})
    return hashes


def read_split(split: Split) -> Iterator[Page | Failure]:
    """The pages or books of a split, in order, streamed; what cannot be read comes as a failure with its reason.

    Raises OSError where an input cannot be opened or read; never over what it holds.
    """
    return wikipedia.read_pages(split) if split.kind == "wikipedia" else books.read_books(split)
