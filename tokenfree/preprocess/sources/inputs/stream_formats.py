"""The compression formats of dumps: how a stream is told by its first bytes, and decompressed piece by piece."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tokenfree.preprocess.records.input_split import Format

PIECE_BYTES = 1 << 20  # of output asked for at once, so that a bomb cannot fill the memory
XZ_MEMORY_BYTES = 1 << 28  # four times what xz -9 needs; a header may ask for 4 GB
# A bz2 stream with a block, or without one: "BZh", level, then 48 bits of pi or of its square root.
BZ2_HEADER = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
HEADER_BYTES = 10
MAGIC: dict[bytes, Format] = {b"BZh": "bz2", b"\x1f\x8b": "gz", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}


class Decoder(Protocol):
    """What the decompressors of bz2 and lzma have in common."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What was given from behind the end of the stream."""
        ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """The next bytes of output, at most `max_length` unless negative; raises one of `DECODE_ERRORS`."""
        ...


class GzipDecoder:
    """zlib's decompressor with the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        """See `Decoder`."""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """See `Decoder`."""
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """See `Decoder`."""
        return self._inner.decompress(self._inner.unconsumed_tail + data, max(0, max_length))


@dataclass(frozen=True)
class Codec:
    """A format of concatenated streams; `resumable` if a header is long enough to be found after damage."""

    decoder: Callable[[], Decoder]
    magic: bytes
    header: re.Pattern[bytes]
    resumable: bool = False


CODECS: dict[Format, Codec] = {
    "bz2": Codec(bz2.BZ2Decompressor, b"BZh", BZ2_HEADER, resumable=True),
    "gz": Codec(GzipDecoder, b"\x1f\x8b", re.compile(rb"\x1f\x8b\x08")),
    "xz": Codec(lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES), b"\xfd7zXZ\0", re.compile(rb"\xfd7zXZ\0")),
}
DECODE_ERRORS = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)


def stored_format(head: bytes) -> Format:
    """The format that the first bytes of a file tell; `xml`, which is plain, where they tell none."""
    for magic, name in MAGIC.items():
        if head.startswith(magic):
            return name
    return "xml"


def decompressed(decoder: Decoder, data: bytes) -> Iterator[bytes]:
    """All that the decoder can tell once it has `data`: asked again without input, since libbz2 holds output back."""
    piece = decoder.decompress(data, PIECE_BYTES)
    while piece:
        yield piece
        if decoder.eof:
            return
        piece = decoder.decompress(b"", PIECE_BYTES)
