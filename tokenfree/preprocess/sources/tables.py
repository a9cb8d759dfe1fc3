"""Documents in tables: JSON lines, Parquet and Hugging Face datasets."""

import hashlib
import json
import logging
import math
import os
import posixpath
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tokenfree.core.errors import UserError, first_line
from tokenfree.core.files import expand_home, without_surrogates
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, Format, InputSplit, Page
from tokenfree.preprocess.sources.compression import (
    HEADER_BYTES,
    Block,
    Damage,
    Event,
    read_blocks,
    stored_format,
)
from tokenfree.preprocess.sources.files import LANGUAGE_TAG, InputFile, open_input, read_range

PACKED = (".gz", ".bz2", ".xz", ".zst")
PACKED_RATIO = 3  # approximate bytes of text per byte of a compressed file, to estimate the size of a split


def is_packed(name: str) -> bool:
    return _ending(name) in PACKED


def unpacked_name(name: str) -> str:
    return posixpath.splitext(name)[0] if is_packed(name) else name


def endings(name: str) -> tuple[str, str]:
    """Return the lower-case endings of a name for the content and for the compression (empty if none)."""
    return _ending(unpacked_name(name)), _ending(name) if is_packed(name) else ""


def read_packed(path: str) -> Iterator[Event]:
    """Yield the decompressed bytes of a file and its damages.

    Raises OSError if the file cannot be opened or read.
    """
    with open_input(path) as file:
        stored = stored_format(file.read(HEADER_BYTES))
    return read_blocks(path, stored, 0, sys.maxsize)


def _ending(name: str) -> str:
    return posixpath.splitext(name)[1].lower()


_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
USUAL = {"id": "id", "language": "language"}  # optional columns; any other name was given by the user


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns that are read from a table, in addition to `title`."""

    text: str
    id: str
    language: str

    @classmethod
    def of(cls, settings: PreprocessConfig | InputSplit) -> Self:
        return cls(settings.text_column, settings.id_column, settings.language_column)

    def among(self, names: Sequence[str]) -> list[str]:
        return [name for name in dict.fromkeys([self.text, self.id, self.language, "title"]) if name in names]

    def check(self, schema: pa.Schema, what: str) -> None:
        """Raise UserError if the table `what` lacks a column that the user named, or if its text is not text."""
        for role, name in vars(self).items():
            needed = role == "text" or name != USUAL[role]
            if name not in schema.names:
                if needed:
                    raise UserError(
                        f"{what} has no column {name!r}, only {', '.join(schema.names)}; {action(role)}"
                    )
                continue
            # Any value can be an id; a language that is not text is skipped.
            kind = schema.field(name).type
            # Categories of pandas are stored as a dictionary.
            values = kind.value_type if pa.types.is_dictionary(kind) else kind
            if needed and role != "id" and not any(check(values) for check in _TEXT_TYPES):
                raise UserError(f"{what}: column {name!r} holds {kind}, not text; {action(role)}")


def action(role: str) -> str:
    return f"name the one with the {role}: --{role}_column NAME"


# Prefix of the names of such inputs, which are not files.
SCHEME = "hf-dataset:"
BATCH_ROWS = 64  # few, since a row may be a whole book


class Named(NamedTuple):
    """The name of a dataset as the user gives it: `PATH_OR_NAME`, with `:CONFIG` and `@SPLIT` if given."""

    path: str
    config: str | None
    split: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `NAME[:CONFIG][@SPLIT]`.

        A folder may contain a colon; it becomes absolute, the same on all workers.
        """
        name, _, split = expand_home(text).partition("@")
        path, _, config = (name, "", "") if os.path.isdir(name) else name.partition(":")
        return cls(os.path.abspath(path) if os.path.isdir(path) else path, config or None, split or None)

    @property
    def label(self) -> str:
        return str(self._replace(path=os.path.basename(self.path.rstrip("/"))))

    def __str__(self) -> str:
        return (
            self.path + (f":{self.config}" if self.config else "") + (f"@{self.split}" if self.split else "")
        )


def list_datasets(texts: Iterable[str]) -> list[InputFile]:
    """Return the datasets of these names as inputs, each once.

    Raises UserError if there is no such dataset or split. `modified` is the fingerprint. `size` is the number
    of rows, because bytes depend on how files divide the content.
    """
    names = sorted({Named.parse(text) for text in texts}, key=str)
    labels = Counter(named.label for named in names)
    inputs = []
    for named in names:
        dataset = open_dataset(named)
        # Two folders have this name.
        label = named.label if labels[named.label] == 1 else str(named)
        inputs.append(InputFile(SCHEME + str(named), label, len(dataset), dataset._fingerprint))
    return inputs


def split_dataset(
    file: InputFile, columns: TableColumns, language: str | None, split_bytes: int
) -> Iterator[InputSplit]:
    """Yield the rows of a dataset in ranges of about `split_bytes`.

    Raises UserError if the dataset lacks a column.
    """
    named = Named.parse(file.path.removeprefix(SCHEME))
    dataset = open_dataset(named)
    columns.check(dataset.features.arrow_schema, f"hf_dataset: {named}")
    size = dataset.data.nbytes
    num_parts = min(max(1, math.ceil(size / split_bytes)), file.size)
    split = table_split(file, "hf", columns, language or "und", language_is_fixed=language is not None)
    yield from parts_of(split, num_parts, file.size, size // max(1, num_parts))


def table_split(
    file: InputFile, form: Format, columns: TableColumns, language: str, *, language_is_fixed: bool
) -> InputSplit:
    """Return an empty split of a table.

    If `language_is_fixed`, the job's language overrides that of a row.
    """
    return InputSplit(
        kind="books",
        format=form,
        inputs=(file.path,),
        names=(file.name,),
        versions=(file.version,),
        languages=(language,),
        language_given=language_is_fixed,
        text_column=columns.text,
        id_column=columns.id,
        language_column=columns.language,
    )


def parts_of(split: InputSplit, num_parts: int, length: int, size: int) -> Iterator[InputSplit]:
    for part in range(num_parts):
        yield replace(
            split, start=length * part // num_parts, end=length * (part + 1) // num_parts, size=size
        )


def read_rows(split: InputSplit) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the number of each row of a split and its values, for those columns to be read that exist."""
    dataset = open_dataset(Named.parse(split.inputs[0].removeprefix(SCHEME)))
    columns = TableColumns.of(split).among(dataset.column_names)
    number = split.start
    for table in _tables(dataset.select(range(split.start, split.end)), columns):
        for row in table.to_pylist():
            yield str(number), row
            number += 1


def hash_dataset(text: str) -> tuple[int, str]:
    """Return the bytes and SHA-256 (hex) of the values of all columns, however the files divide them."""
    dataset = open_dataset(Named.parse(text))
    digest, size = hashlib.sha256(), 0
    for table in _tables(dataset, sorted(dataset.column_names)):
        for column in table.columns:
            for value in column:
                encoded = repr(value.as_py()).encode(errors="surrogatepass")
                digest.update(len(encoded).to_bytes(8, "big") + encoded)
                size += len(encoded)
    return size, digest.hexdigest()


def open_dataset(named: Named) -> Any:
    """Return the dataset, memory-mapped, by default the split `train`.

    Raises UserError if it cannot be read.
    """
    import datasets

    # `datasets` would read remote files, but not all of its workers could.
    if "://" in str(named):
        raise UserError(
            f"hf_dataset: {named} is an address; copy it here, or give its *.parquet or *.jsonl to books"
        )
    datasets.disable_progress_bars()
    # It logs two lines for each of six attempts.
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    try:
        if any(
            os.path.isfile(os.path.join(named.path, name)) for name in ("state.json", "dataset_dict.json")
        ):
            saved: Any = datasets.load_from_disk(named.path)
            if not isinstance(saved, Mapping) and named.split is None:
                return saved
            split = named.split or "train"
            if split not in saved:
                raise ValueError(f"it has no split {split!r}")
            return saved[split]
        return datasets.load_dataset(named.path, named.config, split=named.split or "train")
    except Exception as error:  # of many kinds, also of the hub and of other libraries
        reason = first_line(error)
        action = "Give a folder, or a name of the hub with its config and split: NAME[:CONFIG][@SPLIT]"
        raise UserError(f"hf_dataset: {named} cannot be read ({reason}). {action}") from error


def _tables(dataset: Any, columns: list[str]) -> Iterator[pa.Table]:
    return dataset.select_columns(columns).with_format("arrow").iter(batch_size=BATCH_ROWS)


MAX_BOOK_BYTES = 100_000_000
RAW_BYTES = 1_000_000  # bytes kept of a document that fails
LOOKED_AT_BYTES = 1 << 18  # bytes at the start of JSON lines that are searched for the field of the text
Row: TypeAlias = "Mapping[str, Any] | Failure"


def check_json_lines(file: InputFile, columns: TableColumns) -> None:
    """Raise UserError if none of the first lines has the text: a field of another name, or a file of another format."""
    data = b""
    for event in (
        read_packed(file.path) if is_packed(file.path) else read_blocks(file.path, "xml", 0, file.size)
    ):
        if isinstance(event, Block):
            data += event.data
        if isinstance(event, Damage) or len(data) >= LOOKED_AT_BYTES:
            break
    lines = data.split(b"\n")
    if len(data) >= LOOKED_AT_BYTES:
        # It may be incomplete.
        lines.pop()
    lines = [line for line in lines if line.strip()]
    rows = [row for line in lines if isinstance(row := _parsed(line), dict)]
    is_list = bool(lines) and lines[0].strip() == b"["
    if lines and (is_list or not any(columns.text in row for row in rows)):
        hint = "write one JSON object a line, in UTF-8"
        if rows and not is_list:
            hint = f"only {', '.join(rows[0])}; {action('text')}"
        raise UserError(f"books: {file.path}: no line has a field {columns.text!r}, {hint}")


def json_rows(split: InputSplit) -> Iterator[tuple[str, Row]]:
    """Yield the offset and object of each line of a part of a file, and a failure for each bad line or damage."""
    path, name = split.inputs[0], split.names[0]
    if is_packed(path):
        yield from _packed_rows(read_packed(path), name)
    else:
        for offset, line in _lines_of_part(path, split.start, split.end):
            yield from _row(name, offset, line)


def _row(name: str, offset: int, line: bytes) -> Iterator[tuple[str, Row]]:
    too_large = len(line) > MAX_BOOK_BYTES
    if not too_large and not line.strip():
        return
    row = None if too_large else _parsed(line)
    if not isinstance(row, dict):
        reason = "too_large" if too_large else "bad_json"
        row = Failure(f"books:{name}:{offset}", reason, line[:RAW_BYTES].decode(errors="replace"))
    yield str(offset), row


def _packed_rows(events: Iterator[Event], name: str) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a compressed file.

    A line cut off by damage is reported with the damage, and the rest of the line after the damage is
    skipped.
    """
    section = _Section(events, 0)
    while True:
        cut, is_first = b"", section.start > 0
        for offset, line in _lines(section, section.start, section.start):
            lost = section.damage is not None and section.damage.reason != "trailing_garbage"
            if (lost or is_first) and not isinstance(_parsed(line), dict):
                cut = line if lost else b""
            else:
                yield from _row(name, offset, line)
            is_first = False
        damage = section.damage
        if damage is None:
            return
        where = f"bytes {damage.offset}"
        yield where, Failure(f"books:{name}:{where}", damage.reason, cut[:RAW_BYTES].decode(errors="replace"))
        section = _Section(events, section.end)


class _Section:
    """The bytes of a compressed file up to the next damage. `damage` is set after the last of them."""

    def __init__(self, events: Iterator[Event], start: int) -> None:
        # Offsets in the decompressed data.
        self.start = self.end = start
        self.damage: Damage | None = None
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        for event in self._events:
            if isinstance(event, Block):
                self.end += len(event.data)
                yield event.data
            elif isinstance(event, Damage):
                self.damage = event
                return


def _parsed(line: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        # Json would also accept a line of UTF-16.
        return json.loads(line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogatepass"))


def _lines_of_part(path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    if start >= end:
        return
    # The newline before `start` shows that a line starts there.
    position = max(0, start - 1)
    with open_input(path) as file:
        yield from _lines(read_range(file, position), position, 0 if start == 0 else None, end)


def _lines(
    blocks: Iterable[bytes], position: int, line_start: int | None, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of each line of `blocks` (of a line that is too large, the beginning).

    The first block lies at `position`. The first line starts at `line_start`, or if None, after the first
    newline.
    """
    line = bytearray()
    for block in blocks:
        begin = 0
        while True:
            newline = block.find(b"\n", begin)
            if line_start is not None and len(line) <= MAX_BOOK_BYTES:
                line += block[begin : newline if newline >= 0 else len(block)]
            if newline < 0:
                break
            if line_start is not None:
                yield line_start, bytes(line)
            line.clear()
            begin = newline + 1
            line_start = position + begin
            if end is not None and line_start >= end:
                return
        position += len(block)
    if line_start is not None and line:
        yield line_start, bytes(line)


def num_row_groups(file: InputFile, columns: TableColumns) -> int:
    """Return the number of row groups of a Parquet file.

    Raises UserError if it is not Parquet, or lacks a column.
    """
    try:
        with open_input(file.path) as opened:
            table = pq.ParquetFile(opened)
            schema, groups = table.schema_arrow, table.num_row_groups
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"books: {file.path} is not a readable Parquet file: {first_line(error)}") from error
    columns.check(schema, f"books: {file.path}")
    return groups


def read_table(split: InputSplit) -> Iterator[Page | Failure]:
    """Yield the documents of a part of a table, and a failure for each line or row that is not a document.

    An id is `books:NAME:ID`. ID is the `id` of the document. Without one, it is the byte offset of the line
    (in the decompressed data), the row group and row, or the row of the dataset. Raises OSError if the file
    cannot be read.
    """
    rows: Iterator[tuple[str, Mapping[str, Any] | Failure]] = _ROWS[split.format](split)
    name, language, columns = split.names[0], split.languages[0], TableColumns.of(split)
    for position, row in rows:
        if isinstance(row, Failure):
            yield row
            continue
        text = row.get(columns.text)
        row_id = row.get(columns.id)
        identity = f"books:{name}:{position if row_id is None else without_surrogates(str(row_id))}"
        if not isinstance(text, str):
            yield Failure(identity, "missing_text", without_surrogates(str(row))[:RAW_BYTES])
            continue
        tag = row.get(columns.language)
        trusted = not split.language_given and isinstance(tag, str) and LANGUAGE_TAG.fullmatch(tag)
        title = row.get("title")
        yield Page(
            id=identity,
            language=tag if trusted and isinstance(tag, str) else language,
            title=without_surrogates(title) if isinstance(title, str) else "",
            text=without_surrogates(text),
        )


def _parquet_rows(split: InputSplit) -> Iterator[tuple[str, Mapping[str, Any] | Failure]]:
    with open_input(split.inputs[0]) as file:
        table = pq.ParquetFile(file)
        columns = TableColumns.of(split).among(table.schema_arrow.names)
        for group in range(split.start, split.end):
            row = 0
            try:
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
                    for values in batch.to_pylist():
                        yield f"{group}.{row}", values
                        row += 1
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                # Arrow raises plain OSErrors for bad content. Those of the file system have an errno.
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                position = f"{group}.{row}"
                yield (
                    position,
                    Failure(f"books:{split.names[0]}:{position}", "damaged_stream", str(error)[:1000]),
                )


_ROWS: Mapping[str, Callable[[InputSplit], Iterator[tuple[str, Any]]]] = {
    "jsonl": json_rows,
    "parquet": _parquet_rows,
    "hf": read_rows,
}
