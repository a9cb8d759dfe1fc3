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
from tokenfree.preprocess.sources.books.json_lines import MAX_BOOK_BYTES, RAW_BYTES, check_json_lines
from tokenfree.preprocess.sources.books.packed import endings, is_packed, read_packed, unpacked_name
from tokenfree.preprocess.sources.books.paragraphs import paragraphs, strip_gutenberg
from tokenfree.preprocess.sources.books.table_columns import TableColumns
from tokenfree.preprocess.sources.books.tables import num_row_groups, read_table
from tokenfree.preprocess.sources.inputs.compression import Block, Damage
from tokenfree.preprocess.sources.inputs.files import InputFile, open_input, read_range
from tokenfree.preprocess.sources.inputs.languages import language_tag

_FORMATS: dict[str, Format] = {".txt": "text", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
UNDETERMINED = "und"
PACKED_RATIO = 3  # bytes that a stored byte of a compressed text stands for, about: for the size of a split
# Files that a user may name, and that are no texts: what to do with each.
_REMEDIES = {
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z"), "unpack it"),
    **dict.fromkeys((".csv", ".tsv", ".arrow"), "give its folder to --hf-dataset, or write it as *.parquet or *.jsonl"),
}


def is_book_name(name: str) -> bool:
    """Whether a file in a folder is taken for books; the index of a dump is none, nor `.json`, mostly settings."""
    content, packed = endings(name)
    return content != ".json" and _form(content, packed) is not None and "multistream-index" not in name


def _form(content: str, packed: str) -> Format | None:
    """What a file with these endings holds; None where it is to be passed over. Parquet packs its columns itself."""
    return None if content == ".parquet" and packed else _FORMATS.get(content)


def check_book_name(file: InputFile) -> None:
    """Refuse a file that the user named, and that by its ending is no text, no JSON lines and no Parquet table.

    Raises:
        UserError: it is such a file.
    """
    content, packed = endings(file.name)
    remedy = "unpack it" if content == ".parquet" and packed else _REMEDIES.get(content)
    if remedy is not None:
        raise UserError(f"books: {file.path}: *{content}{packed} is not read; {remedy}")


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
        form = _form(*endings(file.name)) or "text"
        if form != "text":
            splits += _parts(file, form, columns, languages[file.path], language is not None, split_bytes)
            continue
        if group and sum(map(_text_bytes, group)) + _text_bytes(file) > split_bytes:
            splits.append(_text_split(group, languages))
            group = []
        group.append(file)
    return [*splits, _text_split(group, languages)] if group else splits


def _text_bytes(file: InputFile) -> int:
    """The size of a text; an estimate where it is compressed."""
    return file.size * PACKED_RATIO if is_packed(file.name) else file.size


def _text_split(files: Sequence[InputFile], languages: dict[str, str]) -> InputSplit:
    size = sum(map(_text_bytes, files))
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
    """Cuts of one table: byte ranges of JSON lines, ranges of Parquet's row groups. Compressed lines stay together,
    since only who has read all before a line knows where it begins."""
    length = size = file.size
    if form == "jsonl":
        size = math.ceil(size * check_json_lines(file, columns))
    else:
        length = num_row_groups(file, columns)
    num_parts = min(1 if is_packed(file.name) else math.ceil(size / split_bytes), length)
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
            yield from _read_packed(path, name, language) if is_packed(path) else _read_text(path, name, language)
    else:
        yield from read_table(split)


def _read_text(path: str, name: str, language: str) -> Iterator[Page | Failure]:
    with open_input(path) as file:
        data = b"".join(read_range(file, 0, MAX_BOOK_BYTES + 1))
    yield _bounded_book(data, name, language)


def _read_packed(path: str, name: str, language: str) -> Iterator[Page | Failure]:
    """A book that is compressed. One that a damage cuts off is a failure; garbage behind it is told beside it."""
    data, damage = bytearray(), None
    for event in read_packed(path):
        if isinstance(event, Block):
            data += event.data
        damage = event if isinstance(event, Damage) else None
        if damage is not None or len(data) > MAX_BOOK_BYTES:
            break
    if damage is not None and damage.reason != "trailing_garbage":
        yield Failure(f"books:{name}", damage.reason, data[:RAW_BYTES].decode(errors="replace"))
        return
    yield _bounded_book(bytes(data), name, language)
    if damage is not None:
        yield Failure(f"books:{name}:bytes {damage.offset}", damage.reason, "")


def _bounded_book(data: bytes, name: str, language: str) -> Page | Failure:
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
    stem = posixpath.splitext(posixpath.basename(unpacked_name(name)))[0]
    return Page(id=f"books:{name}", language=language, title=title or stem, text=paragraphs(body))
