"""Decompress files block by block: plain, (multistream) bz2, gz, xz and zst, intact or damaged.

A damaged stream yields every byte before the damage, then a `Damage`, never an error. Reading continues with
the next stream of a bz2 file, such as the official multistream dumps.
"""

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TypeAlias

import zstandard

from tokenfree.preprocess.records import Format
from tokenfree.preprocess.sources.files import READ_BYTES, open_input, read_range

# Of output requested at a time, so that a decompression bomb cannot fill the memory.
PIECE_BYTES = 1 << 20
XZ_MEMORY_BYTES = 1 << 28  # four times what xz -9 needs; a header may request 4 GB
# A bz2 stream with a block or without: "BZh", the level, then 48 bits of pi or of its square root.
BZ2_HEADER = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
HEADER_BYTES = 10


class ZstdDecoder:
    """The decompressor of zstd with the interface of those of bz2 and lzma, for windows of up to 2 GB."""

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        self._pending = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + self._pending

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if data:
            self._pending = memoryview(bytes(self._pending) + data)
        output: list[bytes] = []
        num_bytes = 0
        while self._pending and not self.eof and num_bytes < max_length:
            piece, self._pending = self._pending[:ZST_BYTES], self._pending[ZST_BYTES:]
            output.append(self._inner.decompress(piece))
            num_bytes += len(output[-1])
        return b"".join(output)


Decoder: TypeAlias = "bz2.BZ2Decompressor | lzma.LZMADecompressor | zlib._Decompress | ZstdDecoder"


@dataclass(frozen=True)
class Codec:
    """A format of concatenated streams.

    `resumable`: its header is long enough to be found after damage. `padded`: multiples of four NUL bytes may
    separate streams.
    """

    decoder: Callable[[], Decoder]
    magic: bytes
    header: re.Pattern[bytes]
    resumable: bool = False
    padded: bool = False


CODECS: dict[Format, Codec] = {
    "bz2": Codec(bz2.BZ2Decompressor, b"BZh", BZ2_HEADER, resumable=True),
    "gz": Codec(lambda: zlib.decompressobj(wbits=31), b"\x1f\x8b", re.compile(rb"\x1f\x8b\x08")),
    "xz": Codec(
        lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES),
        b"\xfd7zXZ\0",
        re.compile(rb"\xfd7zXZ\0"),
        padded=True,
    ),
    # Frames of data, and frames that are to be skipped.
    "zst": Codec(ZstdDecoder, b"\x28\xb5\x2f\xfd", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")),
}
DECODE_ERRORS = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, zstandard.ZstdError)


def stored_format(head: bytes) -> Format:
    """Return the format that the first bytes of a file show, or `xml`, which stands for plain files."""
    for name, codec in CODECS.items():
        if head.startswith(codec.magic) or codec.header.match(head):
            return name
    return "xml"


def zst_window(path: str) -> int:
    """Return the bytes of memory that the window of a zst file takes, as far as its first frame shows."""
    with open_input(path) as file:
        head = file.read(18)  # the longest header of a frame
    try:
        return zstandard.get_frame_parameters(head).window_size
    except zstandard.ZstdError:
        return 0


def decompressed(decoder: Decoder, data: bytes) -> Iterator[bytes]:
    """Yield all output available after `data`.

    Calls the decoder again without input, as libbz2 holds output back, or with the input that zlib hands back.
    """
    piece = decoder.decompress(data, PIECE_BYTES)
    while piece:
        yield piece
        if decoder.eof:
            return
        piece = decoder.decompress(getattr(decoder, "unconsumed_tail", b""), PIECE_BYTES)


HELD_BYTES = 1 << 26  # maximum output that waits for its checksum
ZST_BYTES = 1 << 6  # of input given to zstd at a time, which can become 2 MB


@dataclass(frozen=True)
class Block:
    """Decompressed bytes. `owned`: they belong to the requested range. `position`: how far the file was read."""

    data: bytes
    owned: bool
    position: int


@dataclass(frozen=True)
class Damage:
    """Missing bytes. `offset` is the position of the damaged stream, or of the garbage, in the stored file."""

    reason: str  # damaged_stream, truncated or trailing_garbage
    offset: int
    owned: bool


@dataclass(frozen=True)
class End:
    """The end of the file, which is `offset` bytes long. Absent if the reader stops earlier."""

    offset: int


Event: TypeAlias = Block | Damage | End


def read_blocks(path: str, stored: Format, start: int, end: int) -> Iterator[Event]:
    """Yield the decompressed bytes of the range `[start, end)` of a file, then those after it, which are not owned.

    Plain files are cut at the exact byte. In bz2 the range stands for the streams that start in it; the first
    is searched from `start`. Other formats are read from 0. Raises OSError if the file cannot be opened or
    read.
    """
    if start >= end:
        return
    with open_input(path) as file:
        if stored in CODECS:
            yield from _read_streams(path, file, CODECS[stored], start, end)
        else:
            yield from _read_plain(file, start, end)


class Source:
    """An open file with its own position, whose last bytes can be put back."""

    def __init__(self, file: IO[bytes], position: int) -> None:
        file.seek(position)
        self.position = position
        self._file = file
        self._pending = b""

    def read(self) -> bytes:
        block, self._pending = self._pending or self._file.read(READ_BYTES), b""
        self.position += len(block)
        return block

    def put_back(self, data: bytes) -> None:
        """Make `data`, the last bytes read, the next to be read."""
        self._pending = data + self._pending
        self.position -= len(data)

    def peek(self) -> bytes:
        """Return the next bytes without moving the position: enough for a header unless the file ends earlier."""
        head = b""
        while len(head) < HEADER_BYTES and (block := self.read()):
            head += block
        self.put_back(head)
        return head

    def go_to(self, position: int) -> None:
        self._file.seek(position)
        self.position, self._pending = position, b""

    def seek_header(self, header: re.Pattern[bytes], limit: int | None = None) -> bool:
        """Move to the next header and return True.

        Return False if there is none up to the block of `limit`.
        """
        tail = b""
        while (limit is None or self.position - len(tail) < limit) and (block := self.read()):
            window = tail + block
            if match := header.search(window):
                self.put_back(window[match.start() :])
                return True
            tail = window[1 - HEADER_BYTES :]
        return False

    def skip_padding(self) -> int:
        """Move past NUL bytes and return their number."""
        start = self.position
        while block := self.read():
            if rest := block.lstrip(b"\0"):
                self.put_back(rest)
                break
        return self.position - start


def _read_plain(file: IO[bytes], start: int, end: int) -> Iterator[Event]:
    source = Source(file, start)
    while block := source.read():
        block_start = source.position - len(block)
        inside = max(0, min(len(block), end - block_start))
        for data, owned in ((block[:inside], True), (block[inside:], False)):
            if data:
                yield Block(data, owned, source.position)
    yield End(source.position)


def _read_streams(path: str, file: IO[bytes], codec: Codec, start: int, end: int) -> Iterator[Event]:
    source = Source(file, start)
    if codec.resumable and not codec.header.match(source.peek()):
        # Elsewhere, bytes before the first header belong to the previous stream.
        if start == 0:
            yield Damage("damaged_stream", 0, owned=True)
        if not source.seek_header(codec.header, end):
            return
    # A stream belongs to the range that it starts in, and so do the bytes between it and the next header.
    # Each gap between streams is thus reported once, however the file was cut.
    owned = True
    while True:
        offset = source.position
        if owned and codec.resumable and offset >= end:
            owned = False
            # Lets the caller stop before the next stream is decompressed.
            yield Block(b"", owned, offset)
        reason = None
        for piece in _decode(path, source, codec):
            if isinstance(piece, str):
                reason = piece
            elif piece:
                yield Block(piece, owned, source.position)
        if reason is None:
            offset = source.position
            padding = source.skip_padding()
            head = source.peek()
            if codec.header.match(head) and (not padding or (codec.padded and padding % 4 == 0)):
                continue
            if not head:
                yield End(offset)
                return
            source.go_to(offset)
            if not padding and len(head) < HEADER_BYTES and head.startswith(codec.magic[: len(head)]):
                # In the middle of a header.
                reason = "truncated"
        else:
            source.go_to(offset + 1)
        has_next_stream = codec.resumable and source.seek_header(codec.header)
        yield Damage(reason or ("damaged_stream" if has_next_stream else "trailing_garbage"), offset, owned)
        if not has_next_stream:
            return


def _decode(path: str, source: Source, codec: Codec) -> Iterator[bytes | str]:
    """Yield the bytes of the stream at the source's position and move to its end; the last item may be a reason."""
    decoder = codec.decoder()
    start = source.position
    while block := source.read():
        held: list[bytes] = []
        num_yielded = 0
        try:
            for piece in decompressed(decoder, block):
                held.append(piece)
                # Pass on whole blocks only, since a wrong checksum shows after the last byte of its block.
                if len(held) * PIECE_BYTES > HELD_BYTES:
                    num_yielded += sum(map(len, held))
                    # Not joined: output is large where a few bytes expand to many.
                    yield from held
                    held.clear()
        except DECODE_ERRORS:
            yield from _salvage(path, start, source.position - len(block), block, codec, num_yielded)
            yield "damaged_stream"
            return
        yield from held
        if decoder.eof:
            source.put_back(decoder.unused_data)
            return
    yield "truncated"


def _salvage(
    path: str, start: int, block_start: int, block: bytes, codec: Codec, num_to_skip: int
) -> Iterator[bytes]:
    """Yield what the stream at `start` has before the damage in `block`, without its first `num_to_skip` bytes.

    A decompressor that fails drops the output of that call, so the stream is read again, and `block` byte by
    byte.
    """
    decoder = codec.decoder()
    with open_input(path) as file:
        for good in read_range(file, start, block_start):
            for _ in decompressed(decoder, good):
                pass
    saved = bytearray()
    try:
        for at in range(len(block)):
            data = b"".join(decompressed(decoder, block[at : at + 1]))
            saved += data[num_to_skip:]
            num_to_skip = max(0, num_to_skip - len(data))
            # Not a block per byte: the work per block would be repeated a hundred thousand times.
            if len(saved) >= PIECE_BYTES:
                yield bytes(saved)
                saved.clear()
    except DECODE_ERRORS:
        pass
    yield bytes(saved)
