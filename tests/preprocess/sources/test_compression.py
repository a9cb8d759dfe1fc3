"""Whatever the format and the damage, all bytes before the damage come, and then word of it."""

import bz2
import functools
import gzip
import lzma
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.preprocess.records import Format
from tokenfree.preprocess.sources.compression import (
    Block,
    Damage,
    End,
    read_blocks,
    stored_format,
    zst_window,
)

# Random letters: 2.5 bz2 blocks and as many read blocks, so that damage can be in the first, the last or
# between.
TEXT = bytes(random.Random(0).choices(b"abcdefgh \n", k=2_200_000))


def compress_zst(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data).to_pybytes()


COMPRESS: dict[Format, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": compress_zst,
    "xml": bytes,
}


@functools.cache
def compressed(stored: Format) -> bytes:
    """`TEXT` in a format."""
    return COMPRESS[stored](TEXT)


def read(
    path: Path, data: bytes, stored: Format, start: int = 0, end: int | None = None
) -> tuple[bytes, list[End | Damage]]:
    path.write_bytes(data)
    events = list(read_blocks(str(path), stored, start, len(data) if end is None else end))
    blocks = [event.data for event in events if isinstance(event, Block) and event.owned]
    rest = [
        event for event in events if isinstance(event, End) or (isinstance(event, Damage) and event.owned)
    ]
    return b"".join(blocks), rest


@pytest.mark.parametrize("stored", COMPRESS)
def test_whole_files_of_one_and_of_several_streams(stored: Format, tmp_path: Path) -> None:
    data = compressed(stored)
    if stored != "xml":
        assert stored_format(data[:10]) == stored
    for parts in (1, 2):
        text, rest = read(tmp_path / "file", data * parts, stored)
        assert text == TEXT * parts
        assert rest == [End(len(data) * parts)]


@pytest.mark.parametrize("stored", ["bz2", "gz", "xz", "zst"])
def test_a_cut_file_gives_what_is_before_the_cut(stored: Format, tmp_path: Path) -> None:
    data = compressed(stored)
    text, rest = read(tmp_path / "file", data[: len(data) * 9 // 10], stored)
    assert TEXT.startswith(text)
    assert len(text) > {"bz2": 1_700_000}.get(stored, 1_900_000)
    assert [type(event) for event in rest] == [Damage]
    assert isinstance(rest[0], Damage)
    assert rest[0].reason == "truncated"


@pytest.mark.parametrize("stored", ["bz2", "xz"])
def test_padding_is_no_loss_but_garbage_is_told(stored: Format, tmp_path: Path) -> None:
    data = COMPRESS[stored](TEXT[:1000])
    assert read(tmp_path / "file", data + bytes(1024), stored) == (TEXT[:1000], [End(len(data))])
    text, rest = read(tmp_path / "file", data + bytes(16) + b"<html>404</html>", stored)
    assert (text, rest) == (TEXT[:1000], [Damage("trailing_garbage", len(data), True)])


@settings(max_examples=12, deadline=None)
@given(place=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_flipped_bit_costs_its_block_and_never_gives_wrong_bytes(
    place: float, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(compressed("bz2"))
    at = 4 + int(place * (len(data) - 5))  # after "BZh9", by which the format is known
    data[at] ^= 1 << bit
    text, rest = read(tmp_path_factory.mktemp("flip") / "file", bytes(data), "bz2")
    assert TEXT.startswith(text)
    num_blocks_before = int(at / len(data) * len(TEXT) / 900_000)
    assert len(text) >= min(num_blocks_before, 2) * 890_000
    # The last bits of a stream pad it to whole bytes, so flipping them may change nothing.
    assert len(rest) == 1
    assert isinstance(rest[0], Damage) or text == TEXT


def test_reading_goes_on_with_the_stream_after_a_damaged_one(tmp_path: Path) -> None:
    streams = [bytearray(bz2.compress(bytes([letter]) * 5000)) for letter in b"abc"]
    streams[1][20] ^= 255
    text, rest = read(tmp_path / "file", b"".join(streams), "bz2")
    size = len(streams[0])
    assert text == b"a" * 5000 + b"c" * 5000
    assert rest == [Damage("damaged_stream", size, True), End(size + len(streams[1]) + len(streams[2]))]
    # The range of the stream before a destroyed header reports it too.
    streams[1][0] = 0
    for cut in (10, size - 1, size, size + 1, size + 15):
        text, rest = read(tmp_path / "file", b"".join(streams), "bz2", 0, cut)
        assert text == b"a" * 5000
        assert rest == [Damage("damaged_stream", size, True), End(sum(map(len, streams)))]
        assert read(tmp_path / "file", b"".join(streams), "bz2", cut) == (
            b"c" * 5000,
            [End(sum(map(len, streams)))],
        )


@pytest.mark.parametrize("stored", ["bz2", "gz", "xz"])
def test_what_is_saved_from_damage_comes_in_large_blocks(stored: Format, tmp_path: Path) -> None:
    # gz gives some bytes of text for each byte read, which as blocks of their own cost minutes for one
    # megabyte.
    data = bytearray(compressed(stored))
    data[-100:-80] = b"\xff" * 20
    path = tmp_path / "file"
    path.write_bytes(data)
    blocks = [event for event in read_blocks(str(path), stored, 0, len(data)) if isinstance(event, Block)]
    # The last bz2 block may be lost; gz notices late.
    start = b"".join(block.data for block in blocks)[:1_700_000]
    assert len(start) == 1_700_000
    assert TEXT.startswith(start)
    assert len(blocks) < 20


def test_an_empty_stream_is_a_stream(tmp_path: Path) -> None:
    data = bz2.compress(b"a") + bz2.compress(b"") + bz2.compress(b"b")
    assert read(tmp_path / "file", data, "bz2") == (b"ab", [End(len(data))])


def test_bombs_are_unpacked_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(bz2.compress(bytes(300_000_000)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes = [len(event.data) for event in read_blocks(str(path), "bz2", 0, 10) if isinstance(event, Block)]
    assert sum(sizes) == 300_000_000
    assert max(sizes) < 80_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250_000  # kB


def test_padded_xz_streams_are_read(tmp_path: Path) -> None:
    first, second = lzma.compress(b"a", preset=0), lzma.compress(b"b", preset=0)
    data = first + bytes(8) + second + bytes(4)
    assert read(tmp_path / "file", data, "xz") == (b"ab", [End(len(data) - 4)])
    # The padding of the format is a multiple of four bytes.
    text, rest = read(tmp_path / "file", first + bytes(7) + second, "xz")
    assert (text, rest) == (b"a", [Damage("trailing_garbage", len(first), True)])


def test_zst_windows_of_any_size_are_read(tmp_path: Path) -> None:
    long = zstandard.ZstdCompressionParameters.from_level(1, window_log=31)
    compressor = zstandard.ZstdCompressor(compression_params=long).compressobj()
    frame = compressor.compress(TEXT[:1000]) + compressor.flush()
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0" + b"pzst"
    data = skipped + compress_zst(b"a") + frame
    assert stored_format(data[:10]) == "zst"
    assert read(tmp_path / "file", data, "zst") == (b"a" + TEXT[:1000], [End(len(data))])
    (tmp_path / "file").write_bytes(frame)
    assert zst_window(str(tmp_path / "file")) == 1 << 31
    text, rest = read(tmp_path / "file", frame + b"garbage", "zst")
    assert (text, rest) == (TEXT[:1000], [Damage("trailing_garbage", len(frame), True)])
