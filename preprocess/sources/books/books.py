"""Books and other plain documents: text files (one a book), JSON lines and Parquet tables."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator, Sequence

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.records.document import Failure
from tokenfree.preprocess.records.input_split import Format, InputSplit
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.sources.books.encodings import NotText, decode_book
from tokenfree.preprocess.sources.books.paragraphs import paragraphs, strip_gutenberg
from tokenfree.preprocess.sources.books.table_columns import TableColumns
from tokenfree.preprocess.sources.books.tables import (
    MAX_BOOK_BYTES,
    RAW_BYTES,
    check_json_lines,
    num_row_groups,
    read_table,
)
from tokenfree.preprocess.sources.inputs.files import InputFile, open_input, read_range
from tokenfree.preprocess.sources.inputs.languages import language_tag

_FORMATS: dict[str, Format] = {".txt": "text", ".jsonl": "jsonl", ".parquet": "parquet"}
UNDETERMINED = "und"
# Files that a user may name, and that are no texts: what to do with each.
_REMEDIES = {
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst", ".zip"), "unpack it"),
    ".json": "name it *.jsonl if it holds one object a line, else: jq -c '.[]' FILE > NEW.jsonl",
    **dict.fromkeys((".csv", ".tsv", ".arrow"), "give its folder to --hf-dataset, or write it as *.parquet or *.jsonl"),
}


def is_book_name(name: str) -> bool:
    """Whether a file in a folder is taken for books."""
    return posixpath.splitext(name)[1].lower() in _FORMATS


def check_book_name(file: InputFile) -> None:
    """Refuse a file that the user named, and that by its ending is no text, no JSON lines and no Parquet table.

    Raises:
        UserError: it is such a file.
    """
    ending = posixpath.splitext(file.name)[1].lower()
    if ending in _REMEDIES:
        raise UserError(f"books: {file.path}: *{ending} is not read; {_REMEDIES[ending]}")


def split_books(
    files: Sequence[InputFile], columns: TableColumns, language: str | None, split_bytes: int
) -> list[InputSplit]:
    """Splits of about `split_bytes` at most: text files together, in order; parts of JSON lines and Parquet tables.

    Raises:
        UserError: a table cannot be read, or has no such columns.
    """
    languages = _languages(files, language)
    splits: list[InputSplit] = []
    group: list[InputFile] = []
    for file in files:
        form = _FORMATS.get(posixpath.splitext(file.name)[1].lower(), "text")
        if form != "text":
            splits += _parts(file, form, columns, languages[file.path], language is not None, split_bytes)
            continue
        if group and sum(member.size for member in group) + file.size > split_bytes:
            splits.append(_text_split(group, languages))
            group = []
        group.append(file)
    return [*splits, _text_split(group, languages)] if group else splits


def _text_split(files: Sequence[InputFile], languages: dict[str, str]) -> InputSplit:
    size = sum(file.size for file in files)
    return InputSplit(
        kind="books",
        format="text",
        inputs=tuple(file.path for file in files),
        names=tuple(file.name for file in files),
        versions=tuple(file.version for file in files),
        languages=tuple(languages[file.path] for file in files),
        start=0,
        end=size,
        size=size,
    )


def _parts(
    file: InputFile, form: Format, columns: TableColumns, language: str, given: bool, split_bytes: int
) -> Iterator[InputSplit]:
    """Cuts of one table: byte ranges of JSON lines, ranges of Parquet's row groups."""
    length = size = file.size
    if form == "jsonl":
        check_json_lines(file, columns)
    else:
        length = num_row_groups(file, columns)
    num_parts = min(math.ceil(size / split_bytes), length)
    for part in range(num_parts):
        yield InputSplit(
            kind="books",
            format=form,
            inputs=(file.path,),
            names=(file.name,),
            versions=(file.version,),
            languages=(language,),
            start=length * part // num_parts,
            end=length * (part + 1) // num_parts,
            size=math.ceil(size / num_parts),
            language_given=given,
            text_column=columns.text,
            id_column=columns.id,
            language_column=columns.language,
        )


def _languages(files: Sequence[InputFile], language: str | None) -> dict[str, str]:
    """By path: the job's language, or the folder's name, or the files' prefixes, where each file of a folder has one.

    A prefix counts only if all files beside it have one, so that `my_antonia.txt` is not taken for Burmese.
    """
    prefixes: dict[str, set[str | None]] = {}
    for file in files:
        prefixes.setdefault(posixpath.dirname(file.path), set()).add(_prefix_language(file.path))
    tags = {}
    for file in files:
        folder = posixpath.dirname(file.path)
        by_prefix = None if None in prefixes[folder] else _prefix_language(file.path)
        tags[file.path] = language or language_tag(posixpath.basename(folder)) or by_prefix or UNDETERMINED
    return tags


def _prefix_language(path: str) -> str | None:
    prefix, underscore, _ = posixpath.basename(path).partition("_")
    return language_tag(prefix) if underscore and len(prefix) == 2 else None


def read_books(split: InputSplit) -> Iterator[Page | Failure]:
    """The books of a split, in order; a file or a line that is no book comes as a failure that names it."""
    if split.format == "text":
        for path, name, language in zip(split.inputs, split.names, split.languages, strict=True):
            yield _read_text(path, name, language)
    else:
        yield from read_table(split)


def _read_text(path: str, name: str, language: str) -> Page | Failure:
    with open_input(path) as file:
        data = b"".join(read_range(file, 0, MAX_BOOK_BYTES + 1))
    if len(data) > MAX_BOOK_BYTES:
        return Failure(f"books:{name}", "too_large", data[:RAW_BYTES].decode(errors="replace"))
    return parse_book(data, name, language)


def parse_book(data: bytes, name: str, language: str) -> Page | Failure:
    """The book that a text file holds; reasons against it: binary, html, xml, bad_encoding."""
    try:
        text = decode_book(data)
    except NotText as error:
        return Failure(f"books:{name}", str(error), data[:RAW_BYTES].decode(errors="replace"))
    body, title = strip_gutenberg(text.replace("\r\n", "\n").replace("\r", "\n"))
    stem = posixpath.splitext(posixpath.basename(name))[0]
    return Page(id=f"books:{name}", language=language, title=title or stem, text=paragraphs(body))
