"""The texts of a corpus, one after another: lines of files or of standard input, JSON lines, or windows of our data."""

from __future__ import annotations

import codecs
import itertools
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import fsspec

from tokenfree.preprocess.common.addresses import check_address, check_is_stored
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
from tokenfree.train.data.shard_reader import ShardReader

STANDARD_INPUT = "-"
_JSON = (".jsonl", ".ndjson")
_PACKED = (".gz", ".bz2", ".xz")
_UNREADABLE = (OSError, EOFError, ValueError, ImportError, zlib.error, lzma.LZMAError)


def read_texts(source: str, field: str = "text") -> Iterator[str]:
    """The texts of a file (a path or any fsspec address), of standard input (`-`), or of a data directory.

    A file has a text a line, an empty line being an empty text; one whose name ends in .jsonl or .ndjson has a JSON
    object a line; either may be packed (.gz, .bz2, .xz). Of a data directory all windows are read, split by split, in
    the order of its shards.

    Args:
        source: where they are.
        field: of a JSON object, that holds the text.

    Raises:
        UserError: there is no such file, it cannot be read, a line is not UTF-8, or has no such field.
    """
    if source == STANDARD_INPUT:
        return _lines(sys.stdin.buffer, "standard input")
    if _is_data(source):
        return _windows(source)
    lines = _file_lines(source)
    name = source.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    return _of_objects(lines, source, field) if name.endswith(_JSON) else lines


def _is_data(source: str) -> bool:
    try:
        return Storage.at(source).size(MANIFEST) is not None
    except NotADirectoryError:
        return False


def _file_lines(path: str) -> Iterator[str]:
    check_address(path)
    check_is_stored(path.removeprefix("file://"))
    try:
        with fsspec.open(path, "rb", compression="infer") as file:
            yield from _lines(file, path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file or data directory") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a folder, and no data directory (it has no {MANIFEST}); give a file") from None
    except UserError:
        raise
    except _UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _lines(file: Any, name: str) -> Iterator[str]:
    """The lines of an open file of bytes, without their ends: LF or CRLF, or CR where there is no LF."""
    first = next(file, b"")
    start = [first] if first.endswith(b"\n") else first.removesuffix(b"\r").split(b"\r")
    for number, line in enumerate(itertools.chain(start if first else [], file), 1):
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            content = content.removeprefix(codecs.BOM_UTF8)
        try:
            yield content.decode()
        except UnicodeDecodeError:
            raise UserError(f"{name}:{number}: not UTF-8; convert the file") from None


def _of_objects(lines: Iterable[str], path: str, field: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise UserError(f"{path}:{number}: not JSON; give a JSON object a line") from None
        text = values.get(field) if isinstance(values, dict) else None
        if not isinstance(text, str):
            has = f"has {', '.join(map(repr, values))}" if isinstance(values, dict) else "is no object"
            raise UserError(f"{path}:{number}: no text in the field {field!r} (the line {has}); name another: --field")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{path}:{number}: half of a surrogate pair, which is no character; remove it") from None
        yield text


def _windows(data: str) -> Iterator[str]:
    for split in load_manifest(data).splits:
        reader = ShardReader(data, split)
        for number, entry in enumerate(reader.shards):
            shard = reader.shard(number)
            for row in range(entry.rows):
                yield bytes(shard.row("text", row)).decode()
