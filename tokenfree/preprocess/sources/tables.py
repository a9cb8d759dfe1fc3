"""Documents in tables: JSON lines, Parquet and Hugging Face datasets."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import posixpath
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, Format, InputSplit, Page
from tokenfree.preprocess.sources.compression import HEADER_BYTES, Block, Damage, Event, read_blocks, stored_format
from tokenfree.preprocess.sources.files import LANGUAGE_TAG, InputFile, open_input, read_range

PACKED = {".gz": "zcat", ".bz2": "bzcat", ".xz": "xzcat", ".zst": "zstdcat"}  # the command that unpacks each


def is_packed(name: str) -> bool:
    """Return True if the name of a file has the ending of a compressed one."""
    return _ending(name) in PACKED


def unpacked_name(name: str) -> str:
    """Return the name of a file without the ending of its compression, if any."""
    return posixpath.splitext(name)[0] if is_packed(name) else name


def endings(name: str) -> tuple[str, str]:
    """Return the lower-case endings of a name for the content and for the compression (empty if none)."""
    return _ending(unpacked_name(name)), _ending(name) if is_packed(name) else ""


def jq_command(command: str, name: str) -> str:
    """Return the shell command that converts a file of this name to JSON lines with the given `jq` command."""
    packed = endings(name)[1]
    return f"{PACKED[packed]} FILE | {command} > NEW.jsonl" if packed else f"{command} FILE > NEW.jsonl"


def packed_format(path: str) -> Format:
    """Return the compression that the first bytes of a file show, or `xml` for an uncompressed file.

    Raises:
        OSError: The file cannot be opened or read.
    """
    with open_input(path) as file:
        return stored_format(file.read(HEADER_BYTES))


def read_packed(path: str) -> Iterator[Event]:
    """Yield the decompressed bytes of a file and its damages.

    Raises:
        OSError: The file cannot be opened or read.
    """
    return read_blocks(path, packed_format(path), 0, sys.maxsize)


def _ending(name: str) -> str:
    return posixpath.splitext(name)[1].lower()


USUAL = {"id": "id", "language": "language"}  # optional columns; any other name was given by the user
SHOWN = 12  # number of columns shown in a message


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns that are read from a table, in addition to `title`."""

    text: str
    id: str
    language: str

    @classmethod
    def of(cls, settings: PreprocessConfig | InputSplit) -> TableColumns:
        """Return the columns that the settings of a job, or an input split, name."""
        return cls(settings.text_column, settings.id_column, settings.language_column)

    def among(self, names: Sequence[str]) -> list[str]:
        """Return those of `names` that are to be read, each once."""
        wanted = dict.fromkeys([self.text, self.id, self.language, "title"])
        return [name for name in wanted if name in names]

    def check(self, schema: pa.Schema, what: str) -> None:
        """Check that a table has the column of the text, and the other columns that the user named.

        Args:
            schema: Schema of the table.
            what: Name of the table in the message.

        Raises:
            UserError: A column is missing, or the column of the text or of the language does not hold text.
        """
        for role, name in vars(self).items():
            self._check(role, name, schema, what)

    def _check(self, role: str, name: str, schema: pa.Schema, what: str) -> None:
        if name not in schema.names:
            if name == USUAL.get(role):
                return
            raise UserError(f"{what} has no column {name!r}, only {shown(schema.names)}; {remedy(role)}")
        kind = schema.field(name).type
        if role == "id" or (name == USUAL.get(role) and role != "text"):
            return  # any value can be an id; a language that is not text is skipped, as in JSON lines
        if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
            raise UserError(f"{what}: column {name!r} holds {kind}, no text; {remedy(role)}")


def shown(names: Sequence[str]) -> str:
    """Return the names of columns for a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def remedy(role: str) -> str:
    """Return the instruction for a missing column with this role (text, id or language)."""
    return f"name the one with the {role}: --{role}_column NAME"


SCHEME = "hf-dataset:"  # prefix of the names of such inputs, which are not files
BATCH_ROWS = 64  # few, since a row may be a whole book


class Named(NamedTuple):
    """The name of a dataset as the user gives it: `PATH_OR_NAME`, with `:CONFIG` and `@SPLIT` if given."""

    path: str
    config: str | None
    split: str | None

    @classmethod
    def parse(cls, text: str) -> Named:
        """Parse `NAME[:CONFIG][@SPLIT]`. A folder may contain a colon; it becomes absolute, the same on all workers."""
        name, _, split = text.partition("@")
        path, _, config = (name, "", "") if os.path.isdir(name) else name.partition(":")
        return cls(os.path.abspath(path) if os.path.isdir(path) else path, config or None, split or None)

    @property
    def label(self) -> str:
        """Name in ids, without the folders above."""
        return _joined(os.path.basename(self.path.rstrip("/")), self.config, self.split)

    def __str__(self) -> str:
        return _joined(self.path, self.config, self.split)


def list_datasets(texts: Iterable[str]) -> list[InputFile]:
    """Return the datasets of these names as inputs, each once.

    `size` is the number of rows, and `modified` the fingerprint. `size` is not in bytes,
    because those depend on how the files divide the same content.

    Raises:
        UserError: There is no such dataset or split.
    """
    names = sorted({Named.parse(text) for text in texts}, key=str)
    labels = Counter(named.label for named in names)
    found = []
    for named in names:
        dataset = open_dataset(named)
        label = named.label if labels[named.label] == 1 else str(named)  # two folders have this name
        found.append(InputFile(SCHEME + str(named), label, len(dataset), dataset._fingerprint))
    return found


def split_dataset(
    file: InputFile, columns: TableColumns, language: str | None, split_bytes: int
) -> Iterator[InputSplit]:
    """Yield the rows of a dataset in ranges of about `split_bytes`.

    Raises:
        UserError: The dataset lacks a column.
    """
    named = Named.parse(file.path.removeprefix(SCHEME))
    dataset = open_dataset(named)
    columns.check(dataset.features.arrow_schema, f"hf_dataset: {named}")
    num_rows, size = file.size, dataset.data.nbytes
    num_parts = min(max(1, math.ceil(size / split_bytes)), num_rows)
    for part in range(num_parts):
        yield InputSplit(
            kind="books",
            format="hf",
            inputs=(file.path,),
            names=(file.name,),
            versions=(file.version,),
            languages=(language or "und",),
            start=num_rows * part // num_parts,
            end=num_rows * (part + 1) // num_parts,
            size=size // num_parts,
            language_given=language is not None,
            text_column=columns.text,
            id_column=columns.id,
            language_column=columns.language,
        )


def read_rows(split: InputSplit) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the number of each row of a split and its values, for those columns to be read that exist.

    Raises:
        UserError: The dataset no longer exists.
    """
    dataset = open_dataset(Named.parse(split.inputs[0].removeprefix(SCHEME)))
    columns = TableColumns.of(split).among(dataset.column_names)
    number = split.start
    for table in _tables(dataset.select(range(split.start, split.end)), columns):
        for row in table.to_pylist():
            yield str(number), row
            number += 1


def hash_dataset(text: str) -> tuple[int, str]:
    """Return the bytes and SHA-256 (hex) of the values of all columns, however the files divide them.

    Raises:
        UserError: There is no such dataset.
    """
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
    """Return the dataset of that name, memory-mapped. The default split is `train`.

    Raises:
        UserError: The dataset cannot be found or read. The message names the existing splits.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    if "://" in str(named):
        raise UserError(f"hf_dataset: {named} is an address; copy it here, or give its *.parquet or *.jsonl to books")
    if os.path.isfile(named.path):
        raise UserError(f"hf_dataset: {named} is a file; give its folder, or give *.parquet, *.jsonl or *.txt to books")
    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)  # it logs two lines for each of six attempts
    try:
        if any(os.path.isfile(os.path.join(named.path, name)) for name in ("state.json", "dataset_dict.json")):
            saved: Any = datasets.load_from_disk(named.path)
            return _split_of(named, saved)
        return datasets.load_dataset(named.path, named.config, split=named.split or "train")
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, ImportError, DatasetsError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        where = "" if os.path.isdir(named.path) else "is no folder here, and "
        remedy = "give a folder, or a name of the hub with its config and split: NAME[:CONFIG][@SPLIT]"
        raise UserError(f"hf_dataset: {named} {where}cannot be read ({said}); {remedy}") from error


def _split_of(named: Named, saved: Any) -> Any:
    if not isinstance(saved, Mapping):
        if named.split:
            raise UserError(f"hf_dataset: {named.path} has no splits; leave out @{named.split}")
        return saved
    split = named.split or "train"
    if split not in saved:
        raise UserError(f"hf_dataset: {named.path} has no split {split!r}, only {', '.join(saved)}; add @SPLIT")
    return saved[split]


def _joined(path: str, config: str | None, split: str | None) -> str:
    return path + (f":{config}" if config else "") + (f"@{split}" if split else "")


def _tables(dataset: Any, columns: list[str]) -> Iterator[pa.Table]:
    return dataset.select_columns(columns).with_format("arrow").iter(batch_size=BATCH_ROWS)


MAX_BOOK_BYTES = 100_000_000
RAW_BYTES = 1_000_000  # bytes kept of a document that fails
LOOKED_AT_BYTES = 1 << 18  # bytes at the start of JSON lines that are searched for the field of the text
Row: TypeAlias = "Mapping[str, Any] | Failure"


@dataclass(frozen=True)
class _Head:
    """The first bytes of a file, decompressed. `ratio` is the number of them per stored byte."""

    data: bytes
    stored: Format
    damaged: bool = False
    ratio: float = 1.0


def check_json_lines(file: InputFile, columns: TableColumns) -> float:
    """Check the first lines of a file of JSON lines and return the number of decompressed bytes per stored byte.

    A line that is not JSON or lacks the text fails alone. But if none of the first lines has the text, the field has
    another name, or the file has another format.

    Raises:
        UserError: None of the first lines has the text, the file is unreadable, or its compression differs from its
            name.
    """
    try:
        head = _head(file.path)
    except OSError as error:
        said = error.strerror or str(error).splitlines()[0]
        raise UserError(f"books: cannot read {file.path} ({said}); check its rights") from error
    whole = head.data.count(b"\n") if len(head.data) == LOOKED_AT_BYTES else None  # the last line may be incomplete
    lines = [(number, line) for number, line in enumerate(head.data.split(b"\n")[:whole], 1) if line.strip()]
    rows = [(number, row) for number, line in lines if isinstance(row := _parsed(line), dict)]
    if not rows:
        _check_compression(file, head, has_lines=bool(lines))
    if not lines:
        return head.ratio
    first, opening = lines[0][0], lines[0][1].strip()
    if opening == b"[" or (opening.startswith(b"[") and not rows):
        raise UserError(_of_another_form(file, first, "a list of JSON", "jq -c '.[]'"))
    if opening == b"{":
        raise UserError(_of_another_form(file, first, "an object over several lines", "jq -c ."))
    if rows and not any(columns.text in row for _, row in rows):
        number, row = rows[0]
        raise UserError(
            f"books: {file.path}, line {number}: no field {columns.text!r}, only {shown(list(row))}; {remedy('text')}"
        )
    return head.ratio


def _head(path: str) -> _Head:
    if not is_packed(path):
        with open_input(path) as opened:
            data = opened.read(LOOKED_AT_BYTES)
        return _Head(data, stored_format(data))
    data, position, damaged = b"", 0, False
    for event in read_packed(path):
        if isinstance(event, Block):
            data, position = data + event.data, event.position
        damaged |= isinstance(event, Damage)
        if damaged or len(data) >= LOOKED_AT_BYTES:
            break
    return _Head(data[:LOOKED_AT_BYTES], packed_format(path), damaged, len(data) / max(1, position))


def _check_compression(file: InputFile, head: _Head, *, has_lines: bool) -> None:
    """Raise if a file without a line of JSON is damaged, or if its compression differs from its name."""
    _, packed = endings(file.path)
    if head.damaged:
        raise UserError(f"books: {file.path} is damaged and no line of it can be read; download it again")
    if packed and has_lines and head.stored == "xml":
        raise UserError(f"books: {file.path} is no {packed[1:]} file; download it again")
    if not packed and head.stored != "xml":
        raise UserError(f"books: {file.path} is compressed; let its name tell that: {file.path}.{head.stored}")


def _of_another_form(file: InputFile, line: int, form: str, command: str) -> str:
    return f"books: {file.path}, line {line}: {form}; give one object a line: {jq_command(command, file.path)}"


def json_rows(split: InputSplit) -> Iterator[tuple[str, Row]]:
    """Yield the offset and object of each line of a part of a file, and a failure for each bad line or damage.

    Raises:
        OSError: The file cannot be opened or read.
    """
    path, name = split.inputs[0], split.names[0]
    if is_packed(path):
        yield from _packed_rows(read_packed(path), name)
        return
    for offset, line in _lines_of_part(path, split.start, split.end):
        yield from _row(name, offset, line)


def _row(name: str, offset: int, line: bytes) -> Iterator[tuple[str, Row]]:
    """Yield the object of a line, or a failure. Yields nothing for an empty line."""
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

    A line cut off by damage is reported with the damage, like a page of a dump. The rest of the line after the damage,
    where reading continues, is skipped.
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
        self.start = self.end = start  # offsets in the decompressed data
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
    """Return the value of a line of JSON, or None if it is not JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(line)


def _lines_of_part(path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of each line that starts in `[start, end)` of a plain file."""
    if start >= end:
        return
    position = max(0, start - 1)  # the newline before `start` shows that a line starts there
    with open_input(path) as file:
        yield from _lines(read_range(file, position), position, 0 if start == 0 else None, end)


def _lines(
    blocks: Iterable[bytes], position: int, line_start: int | None, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of each line of `blocks`. The first block lies at `position`.

    Of a line that is too large, yield the beginning. The first line starts at `line_start`, or if that is None, after
    the first newline. Lines that start at `end` or later are left out.
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


_SURROGATES = re.compile("[\ud800-\udfff]")


def num_row_groups(file: InputFile, columns: TableColumns) -> int:
    """Return the number of row groups in a Parquet file.

    Raises:
        UserError: The file is not Parquet, or lacks a column.
    """
    try:
        with open_input(file.path) as opened:
            table = pq.ParquetFile(opened)
            schema, groups = table.schema_arrow, table.num_row_groups
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"books: {file.path} is no readable Parquet file: {str(error).splitlines()[0]}") from error
    columns.check(schema, f"books: {file.path}")
    return groups


def read_table(split: InputSplit) -> Iterator[Page | Failure]:
    """Yield the documents of a part of a table, and a failure for each line or row that is not a document.

    Reasons: bad_json, missing_text, too_large, damaged_stream, truncated, trailing_garbage. An id is `books:NAME:ID`.
    ID is the `id` of the document. Without one, it is the byte offset of the line (in the decompressed data), the row
    group and row, or the row of the dataset.

    Raises:
        OSError: The file cannot be opened or read.
    """
    rows: Iterator[tuple[str, Mapping[str, Any] | Failure]] = _ROWS[split.format](split)
    name, language, columns = split.names[0], split.languages[0], TableColumns.of(split)
    for position, row in rows:
        if isinstance(row, Failure):
            yield row
            continue
        text = row.get(columns.text)
        own_id = row.get(columns.id)
        identity = f"books:{name}:{position if own_id is None else _clean(str(own_id))}"
        if not isinstance(text, str):
            yield Failure(identity, "missing_text", _clean(str(row))[:RAW_BYTES])
            continue
        told = row.get(columns.language)
        trusted = not split.language_given and isinstance(told, str) and LANGUAGE_TAG.fullmatch(told)
        title = row.get("title")
        yield Page(
            id=identity,
            language=told if trusted and isinstance(told, str) else language,
            title=_clean(title) if isinstance(title, str) else "",
            text=_clean(text),
        )


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON can escape and UTF-8 cannot encode."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


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
                yield position, Failure(f"books:{split.names[0]}:{position}", "damaged_stream", str(error)[:1000])


_ROWS: Mapping[str, Callable[[InputSplit], Iterator[tuple[str, Any]]]] = {
    "jsonl": json_rows,
    "parquet": _parquet_rows,
    "hf": read_rows,
}
