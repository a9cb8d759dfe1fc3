"""Books and JSON lines that are compressed: known by their endings, and decompressed as dumps are."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator

from tokenfree.preprocess.records.input_split import Format
from tokenfree.preprocess.sources.inputs.compression import Event, read_blocks
from tokenfree.preprocess.sources.inputs.files import open_input
from tokenfree.preprocess.sources.inputs.stream_formats import HEADER_BYTES, stored_format

PACKED = {".gz": "zcat", ".bz2": "bzcat", ".xz": "xzcat", ".zst": "zstdcat"}  # and what a user unpacks it with


def is_packed(name: str) -> bool:
    """Whether a file is compressed, as its name tells."""
    return _ending(name) in PACKED


def unpacked_name(name: str) -> str:
    """The name of a file without the ending that tells how it is compressed, if it has one."""
    return posixpath.splitext(name)[0] if is_packed(name) else name


def endings(name: str) -> tuple[str, str]:
    """What the endings of a name tell, in small letters: what the file holds, and how it is compressed (or nothing)."""
    return _ending(unpacked_name(name)), _ending(name) if is_packed(name) else ""


def jq_command(command: str, name: str) -> str:
    """The line of a shell by which `jq` with its options makes JSON lines of a file of this name."""
    packed = endings(name)[1]
    return f"{PACKED[packed]} FILE | {command} > NEW.jsonl" if packed else f"{command} FILE > NEW.jsonl"


def packed_format(path: str) -> Format:
    """How a file is compressed, as its first bytes tell; `xml` where it is not.

    Raises:
        OSError: the file cannot be opened or read.
    """
    with open_input(path) as file:
        return stored_format(file.read(HEADER_BYTES))


def read_packed(path: str) -> Iterator[Event]:
    """The decompressed bytes of a file, and word of its damages.

    Raises:
        OSError: the file cannot be opened or read.
    """
    return read_blocks(path, packed_format(path), 0, sys.maxsize)


def _ending(name: str) -> str:
    return posixpath.splitext(name)[1].lower()
