"""Files of JSON lines, plain or compressed: looked at before a job begins, and read line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.records.document import Failure
from tokenfree.preprocess.records.input_split import Format, InputSplit
from tokenfree.preprocess.sources.books.packed import endings, is_packed, jq_command, packed_format, read_packed
from tokenfree.preprocess.sources.books.table_columns import TableColumns, remedy, shown
from tokenfree.preprocess.sources.inputs.compression import Block, Damage, Event
from tokenfree.preprocess.sources.inputs.files import InputFile, open_input, read_range
from tokenfree.preprocess.sources.inputs.stream_formats import stored_format

MAX_BOOK_BYTES = 100_000_000
RAW_BYTES = 1_000_000  # kept of a document that fails
LOOKED_AT_BYTES = 1 << 18  # at the start of JSON lines, to see whether they have the field of the text
Row: TypeAlias = "Mapping[str, Any] | Failure"


@dataclass(frozen=True)
class _Head:
    """The first bytes of a file, decompressed; `ratio` is how many of them a stored byte stands for."""

    data: bytes
    stored: Format
    damaged: bool = False
    ratio: float = 1.0


def check_json_lines(file: InputFile, columns: TableColumns) -> float:
    """Look at the first lines of a file of JSON lines; how many bytes a stored byte stands for.

    A line that is no JSON, or lacks the text, is a failure of that line. But where no line among the first has the
    text, the field has another name, or the file is of another form.

    Raises:
        UserError: that is so, or the file cannot be read, or it is not compressed as its name tells.
    """
    try:
        head = _head(file.path)
    except OSError as error:
        said = error.strerror or str(error).splitlines()[0]
        raise UserError(f"books: cannot read {file.path} ({said}); check its rights") from error
    whole = head.data.count(b"\n") if len(head.data) == LOOKED_AT_BYTES else None  # the last line may be cut
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
    """For a file without a line of JSON: is that so because it is damaged, or not compressed as its name tells?"""
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
    """Offset and object of each line of a part of a file; a failure for each line or damage of the stream.

    Raises:
        OSError: the file cannot be opened or read.
    """
    path, name = split.inputs[0], split.names[0]
    if is_packed(path):
        yield from _packed_rows(read_packed(path), name)
        return
    for offset, line in _lines_of_part(path, split.start, split.end):
        yield from _row(name, offset, line)


def _row(name: str, offset: int, line: bytes) -> Iterator[tuple[str, Row]]:
    """The object of a line, or a failure; nothing of an empty line."""
    too_large = len(line) > MAX_BOOK_BYTES
    if not too_large and not line.strip():
        return
    row = None if too_large else _parsed(line)
    if not isinstance(row, dict):
        reason = "too_large" if too_large else "bad_json"
        row = Failure(f"books:{name}:{offset}", reason, line[:RAW_BYTES].decode(errors="replace"))
    yield str(offset), row


def _packed_rows(events: Iterator[Event], name: str) -> Iterator[tuple[str, Row]]:
    """The rows of a compressed file. A line that a damage cuts off is told with the damage, as a page of a dump is;
    what is left of it behind the damage, where reading goes on, is passed over."""
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
    """The bytes of a compressed file up to the next damage, which is known when they are at their end."""

    def __init__(self, events: Iterator[Event], start: int) -> None:
        self.start = self.end = start  # in what could be decompressed
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
    """The value of a line of JSON; None where it is no JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(line)


def _lines_of_part(path: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each line that starts in `[start, end)` of a plain file."""
    if start >= end:
        return
    position = max(0, start - 1)  # a line that starts at `start` shows by the line end before it
    with open_input(path) as file:
        yield from _lines(read_range(file, position), position, 0 if start == 0 else None, end)


def _lines(
    blocks: Iterable[bytes], position: int, line_start: int | None, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each line of `blocks`, the first of which lies at `position`; of one that is too large, the
    beginning. A line begins at `line_start`, else behind the first line end; none that begins at `end` is told."""
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
