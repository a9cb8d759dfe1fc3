"""Documents in tables (JSON lines, Parquet, datasets): a text and, if there, id, language and title of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.records.document import Failure
from tokenfree.preprocess.records.input_split import InputSplit
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.sources.books import huggingface as hf
from tokenfree.preprocess.sources.books.table_columns import TableColumns, remedy, shown
from tokenfree.preprocess.sources.inputs.files import InputFile, open_input, read_range
from tokenfree.preprocess.sources.inputs.languages import LANGUAGE_TAG

MAX_BOOK_BYTES = 100_000_000
RAW_BYTES = 1_000_000  # kept of a document that fails
BATCH_ROWS = 64
LOOKED_AT_BYTES = 1 << 18  # at the start of JSON lines, to see whether they have the field of the text
_SURROGATES = re.compile("[\ud800-\udfff]")


def num_row_groups(file: InputFile, columns: TableColumns) -> int:
    """How many row groups a Parquet file has.

    Raises:
        UserError: it is no Parquet file, or has no such columns.
    """
    try:
        with open_input(file.path) as opened:
            table = pq.ParquetFile(opened)
            schema, groups = table.schema_arrow, table.num_row_groups
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"books: {file.path} is no readable Parquet file: {str(error).splitlines()[0]}") from error
    columns.check(schema, f"books: {file.path}")
    return groups


def check_json_lines(file: InputFile, columns: TableColumns) -> None:
    """Look at the first lines of a file of JSON lines.

    A line that is no JSON, or lacks the text, is a failure of that line. But where no line among the first has the
    text, the field has another name, or the file is of another form.

    Raises:
        UserError: that is so, or the file cannot be read.
    """
    try:
        with open_input(file.path) as opened:
            head = opened.read(LOOKED_AT_BYTES)
    except OSError as error:
        said = error.strerror or str(error).splitlines()[0]
        raise UserError(f"books: cannot read {file.path} ({said}); check its rights") from error
    whole = head.count(b"\n") if len(head) == LOOKED_AT_BYTES else None  # the last line may be cut
    lines = [(number, line) for number, line in enumerate(head.split(b"\n")[:whole], 1) if line.strip()]
    if not lines:
        return
    rows = [(number, row) for number, line in lines if isinstance(row := _parsed(line), dict)]
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


def _of_another_form(file: InputFile, line: int, form: str, command: str) -> str:
    return f"books: {file.path}, line {line}: {form}; give one object a line: {command} FILE > NEW.jsonl"


def read_table(split: InputSplit) -> Iterator[Page | Failure]:
    """The documents of a part of a table, streamed; a failure for each line or row that is none.

    Reasons: bad_json, missing_text, too_large, damaged_stream. An id is `books:NAME:ID`, where ID is the document's own
    `id`, or else the line's byte offset, or row group and row, or the row of the dataset.

    Raises:
        OSError: the file cannot be opened or read.
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
    """JSON can escape lone surrogates, which no UTF-8 can hold."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _json_rows(split: InputSplit) -> Iterator[tuple[str, Mapping[str, Any] | Failure]]:
    for offset, line in _lines(split.inputs[0], split.start, split.end):
        reason, row = "bad_json", None
        if len(line) > MAX_BOOK_BYTES:
            reason = "too_large"
        elif not line.strip():
            continue
        else:
            row = _parsed(line)
        if isinstance(row, dict):
            yield str(offset), row
        else:
            raw = line[:RAW_BYTES].decode(errors="replace")
            yield str(offset), Failure(f"books:{split.names[0]}:{offset}", reason, raw)


def _parsed(line: bytes) -> Any:
    """The value of a line of JSON; None where it is no JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(line)


def _lines(path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each line that starts in `[start, end)`; of one that is too large, the beginning."""
    position = max(0, start - 1)  # a line that starts at `start` shows by the line end before it
    line_start = 0 if start == 0 else None
    line = bytearray()
    if start >= end:
        return
    with open_input(path) as file:
        for block in read_range(file, position):
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
                if line_start >= end:
                    return
            position += len(block)
    if line_start is not None and line:
        yield line_start, bytes(line)


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
                # Arrow raises plain OSErrors over content; those of the file system carry a number.
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                position = f"{group}.{row}"
                yield position, Failure(f"books:{split.names[0]}:{position}", "damaged_stream", str(error)[:1000])


_ROWS: Mapping[str, Callable[[InputSplit], Iterator[tuple[str, Any]]]] = {
    "jsonl": _json_rows,
    "parquet": _parquet_rows,
    "hf": hf.read_rows,
}
