"""What a zst stream holds before its damage, to the last byte."""

from __future__ import annotations

import contextlib

import pyarrow as pa

from tokenfree.preprocess.sources.inputs.files import open_input

SKIPPED_AT_ONCE = 1 << 20


def bytes_before_damage(path: str, given: int) -> bytes:
    """What decompresses before the damage of a file, less the first `given` bytes.

    Arrow drops what it had decompressed in the call that fails; so the file is read once more, behind what was given
    byte by byte. That is less than two of its blocks, of damaged files only.
    """
    saved = bytearray()
    with open_input(path) as file, contextlib.suppress(OSError):
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        while given and (skipped := stream.read(min(given, SKIPPED_AT_ONCE))):
            given -= len(skipped)
        while byte := stream.read(1):
            saved += byte
    return bytes(saved)
