"""Stored bytes to plain bytes, block by block: plain, (multistream) bz2, gz, xz and zst, whole or damaged.

A damaged stream gives every byte before the damage, then a `Damage`; where several streams stand in one bz2 file, as in
the official multistream dumps or those of pbzip2, reading goes on with the next one. Nothing here raises over content.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol, TypeAlias

import pyarrow as pa

from tokenfree.preprocess.records import Format
from tokenfree.preprocess.sources.files import READ_BYTES, open_input, read_range

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


HELD_BYTES = 1 << 26  # of output that waits for its checksum at most
ZST_BYTES = 1 << 16  # read at once from zst: what Arrow drops where it finds a damage


@dataclass(frozen=True)
class Block:
    """Decompressed bytes; `owned` if they belong to the range asked for, `position` is how far the file was read."""

    data: bytes
    owned: bool
    position: int


@dataclass(frozen=True)
class Damage:
    """Bytes are missing here: `offset` in the stored file is that of the damaged stream or of the garbage."""

    reason: str  # damaged_stream, truncated or trailing_garbage
    offset: int
    owned: bool


@dataclass(frozen=True)
class End:
    """The file is at its end, `offset` bytes long; absent where the reader stops before."""

    offset: int


Event: TypeAlias = Block | Damage | End


def read_blocks(path: str, stored: Format, start: int, end: int) -> Iterator[Event]:
    """The decompressed bytes of the range `[start, end)` of a file and, not owned, those after it, as far as one reads.

    For plain files the range is cut to the byte; for bz2 it stands for the streams that start in it, the first of which
    is searched from `start`; other formats are read from 0 whatever the range. Damaged content is told by `Damage`.

    Raises:
        OSError: the file cannot be opened or read.
    """
    if start >= end:
        return
    with open_input(path) as file:
        if stored in CODECS:
            yield from _read_streams(path, file, CODECS[stored], start, end)
        elif stored == "zst":
            yield from _read_zst(path, file)
        else:
            yield from _read_plain(file, start, end)


class Source:
    """An open file with a position of its own and a way to put bytes back."""

    def __init__(self, file: IO[bytes], position: int) -> None:
        file.seek(position)
        self.position = position
        self._file = file
        self._pending = b""

    def read(self) -> bytes:
        """The next block, empty at the end of the file."""
        block, self._pending = self._pending or self._file.read(READ_BYTES), b""
        self.position += len(block)
        return block

    def put_back(self, data: bytes) -> None:
        """Makes `data`, the last bytes read, the next to be read."""
        self._pending = data + self._pending
        self.position -= len(data)

    def peek(self) -> bytes:
        """The next bytes, enough for a header unless the file ends before; the position stays."""
        head = b""
        while len(head) < HEADER_BYTES and (block := self.read()):
            head += block
        self.put_back(head)
        return head

    def go_to(self, position: int) -> None:
        """Makes `position` the next one to be read."""
        self._file.seek(position)
        self.position, self._pending = position, b""

    def seek_header(self, header: re.Pattern[bytes], limit: int | None = None) -> bool:
        """Goes to the next header at or after the position, at the latest in the block of `limit`, if there is one."""
        tail = b""
        while (limit is None or self.position - len(tail) < limit) and (block := self.read()):
            window = tail + block
            if match := header.search(window):
                self.put_back(window[match.start() :])
                return True
            tail = window[1 - HEADER_BYTES :]
        return False

    def only_padding(self) -> bool:
        """Whether nothing but NUL bytes is left; the position goes back to where it was."""
        here = self.position
        padding = True
        while padding and (block := self.read()):
            padding = not block.strip(b"\0")
        self.go_to(here)
        return padding


def _read_plain(file: IO[bytes], start: int, end: int) -> Iterator[Event]:
    source = Source(file, start)
    while block := source.read():
        before = source.position - len(block)
        inside = max(0, min(len(block), end - before))
        for data, owned in ((block[:inside], True), (block[inside:], False)):
            if data:
                yield Block(data, owned, source.position)
    yield End(source.position)


def _read_streams(path: str, file: IO[bytes], codec: Codec, start: int, end: int) -> Iterator[Event]:
    source = Source(file, start)
    if codec.resumable and not codec.header.match(source.peek()):
        if start == 0:  # elsewhere, what is before the first header belongs to the stream before it
            yield Damage("damaged_stream", 0, owned=True)
        if not source.seek_header(codec.header, end):
            return
    # A stream belongs to the range that it starts in. What follows a stream and is no header belongs to it as well, so
    # that each gap between streams is told once, however the file was cut.
    owned = True
    while True:
        offset = source.position
        if owned and codec.resumable and offset >= end:
            owned = False
            yield Block(b"", owned, offset)  # before the next stream is decompressed, perhaps for nothing
        reason = None
        for piece in _decode(path, source, codec):
            if isinstance(piece, str):
                reason = piece
            elif piece:
                yield Block(piece, owned, source.position)
        if reason is None:
            head = source.peek()
            if codec.header.match(head):
                continue
            offset = source.position
            if source.only_padding():
                yield End(offset)
                return
            if len(head) < HEADER_BYTES and head.startswith(codec.magic[: len(head)]):
                reason = "truncated"  # within a header
        else:
            source.go_to(offset + 1)
        found = codec.resumable and source.seek_header(codec.header)
        yield Damage(reason or ("damaged_stream" if found else "trailing_garbage"), offset, owned)
        if not found:
            return


def _decode(path: str, source: Source, codec: Codec) -> Iterator[bytes | str]:
    """The bytes of the stream at the source's position, which is left at the stream's end; or, last, a reason."""
    decoder = codec.decoder()
    start = source.position
    while block := source.read():
        held: list[bytes] = []
        given = 0
        try:
            for piece in decompressed(decoder, block):
                held.append(piece)
                # Only whole blocks are handed on, since a wrong checksum shows after the last byte of its block.
                if len(held) * PIECE_BYTES > HELD_BYTES:
                    given += sum(map(len, held))
                    yield from held  # not joined: they are large where few bytes stand for many
                    held.clear()
        except DECODE_ERRORS:
            yield from _salvage(path, start, source.position - len(block), block, codec, given)
            yield "damaged_stream"
            return
        yield from held
        if decoder.eof:
            source.put_back(decoder.unused_data)
            return
    yield "truncated"


def _salvage(path: str, start: int, before: int, block: bytes, codec: Codec, given: int) -> Iterator[bytes]:
    """What the stream at `start` holds before its damage, which lies in `block` at `before`, less the `given` bytes.

    A decompressor that fails drops what it had decompressed in the same call; so the stream is read once more and the
    block is given byte by byte. It costs the time of reading the stream twice, for damaged ones only.
    """
    decoder = codec.decoder()
    with open_input(path) as file:
        for good in read_range(file, start, before):
            for _ in decompressed(decoder, good):
                pass
    saved = bytearray()
    try:
        for at in range(len(block)):
            data = b"".join(decompressed(decoder, block[at : at + 1]))
            saved += data[given:]
            given = max(0, given - len(data))
            # Not a block for each byte read: what is done for each block would be done a hundred thousand times.
            if len(saved) >= PIECE_BYTES:
                yield bytes(saved)
                saved.clear()
    except DECODE_ERRORS:
        pass
    yield bytes(saved)


def _read_zst(path: str, file: IO[bytes]) -> Iterator[Event]:
    """zst through Arrow, which is there anyway."""
    position = given = 0
    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    while True:
        try:
            data = stream.read(ZST_BYTES)
        except OSError as error:
            message = str(error)
            if "ZSTD" not in message and "compressed" not in message:
                raise
            reason = "truncated" if "runcated" in message else "damaged_stream"
            position, saved = file.tell(), bytes_before_damage(path, given)
            if "nknown frame descriptor" in message and given + len(saved):
                reason = "trailing_garbage"
            yield Block(saved, True, position)
            yield Damage(reason, position, owned=True)
            return
        position = file.tell()
        if not data:
            yield End(position)
            return
        given += len(data)
        yield Block(data, True, position)
