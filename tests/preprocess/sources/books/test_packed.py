"""Compressed JSON lines and texts give what they give when they are unpacked, and word of what is damaged."""

import bz2
import functools
import gzip
import json
import lzma
import random
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, Page
from tokenfree.preprocess.sources.splits import plan_splits, read_split

gz = functools.partial(gzip.compress, mtime=0)  # the same bytes at any time
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gz,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.Codec("zstd").compress(data).to_pybytes(),
}
EACH = pytest.mark.parametrize("ending", PACK)
ROWS = [{"text": f"Text {number} é\n" * (number % 5)} for number in range(3000)]
LINES = "\n".join(
    [*(json.dumps(row) for row in ROWS), '{"text": ', '{"txt": "a"}', "", '{"id": 7, "text": "b"}']
)
BOOK = "Seven geese argue about bread.\n\nNobody wins.\n"


def read(*paths: Path, **settings: object) -> list[Page | Failure]:
    config = PreprocessConfig(books=tuple(map(str, paths)), **settings)  # pyright: ignore[reportArgumentType]
    return [book for split in plan_splits(config) for book in read_split(split)]


def without_name(found: list[Page | Failure], name: str) -> list[tuple[str, str, str]]:
    """What was found, by ids that do not tell the name of the file."""
    return [
        (
            each.id.replace(f"books:{name}", ""),
            each.title if isinstance(each, Page) else each.reason,
            each.text,
        )
        for each in found
    ]


@EACH
def test_packed_lines_are_those_of_the_plain_file(ending: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / f"b.jsonl.{ending}"
    plain.write_text(LINES)
    packed.write_bytes(PACK[ending](LINES.encode()))
    wanted = without_name(read(plain), "a.jsonl")
    assert [reason for _, reason, _ in wanted if reason] == ["bad_json", "missing_text"]
    for split_bytes in (1000, 1 << 26):  # no cut: where a line begins is known to who has read all before it
        config = PreprocessConfig(books=(str(packed),), split_bytes=split_bytes)
        (split,) = plan_splits(config)
        assert without_name(list(read_split(split)), packed.name) == wanted


@EACH
def test_packed_texts_are_those_of_the_plain_file(ending: str, tmp_path: Path) -> None:
    (tmp_path / "de").mkdir()
    for name in (f"a.txt.{ending}", f"b.{ending}", f"C.TXT.{ending.upper()}"):
        (tmp_path / "de" / name).write_bytes(PACK[ending](BOOK.encode("utf-16")))
    (tmp_path / "de" / f"dewiki-20260101-pages-articles-multistream-index.txt.{ending}").write_bytes(b"")
    found = read(tmp_path)
    assert [(each.id, each.language, each.title, each.text) for each in found if isinstance(each, Page)] == [
        (f"books:de/C.TXT.{ending.upper()}", "de", "C", BOOK.strip()),
        (f"books:de/a.txt.{ending}", "de", "a", BOOK.strip()),
    ]
    (named,) = read(tmp_path / "de" / f"b.{ending}")
    assert named == Page(id=f"books:b.{ending}", language="de", title="b", text=BOOK.strip())


@EACH
def test_a_cut_file_gives_the_lines_before_the_cut(ending: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    # Blocks of bz2: 2.
    lines = [json.dumps({"text": "".join(draw.choices("abcdefgh ", k=900))}) for _ in range(2000)]
    data = PACK[ending]("\n".join(lines).encode())
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(data)
    whole = read(path)
    path.write_bytes(data[: len(data) * 3 // 4])
    *found, failure = read(path)
    assert found == whole[: len(found)]
    assert len(found) > 900
    assert isinstance(failure, Failure)
    assert failure.reason == "truncated"
    assert failure.id == f"books:{path.name}:bytes 0"
    assert lines[len(found)].startswith(failure.text)  # the line that was cut


@EACH
@pytest.mark.parametrize("end", [b"\n", b""])
def test_garbage_behind_lines_is_told_and_padding_is_none(ending: str, end: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl.{ending}"
    data = PACK[ending](b'{"text": "Seven geese."}\n{"text": "Bread"' + end)
    path.write_bytes(data + b"<html>404</html>")
    good, bad, garbage = read(path)
    assert good.text == "Seven geese."
    assert isinstance(bad, Failure)
    assert (bad.reason, bad.text) == ("bad_json", '{"text": "Bread"')
    assert isinstance(garbage, Failure)
    assert garbage.reason == "trailing_garbage"
    assert garbage.id == f"books:a.jsonl.{ending}:bytes {len(data)}"
    path.write_bytes(data + bytes(512))
    assert read(path) == [good, bad]


def test_reading_goes_on_behind_a_damaged_stream_of_several(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.bz2"
    lines = [json.dumps({"id": number, "text": f"Goose {number}. " * 30}) + "\n" for number in range(300)]
    text = "".join(lines).encode()
    cuts = [0, 50_000, 100_000, len(text)]  # in the middle of lines, as pbzip2 cuts
    streams = [bz2.compress(text[start:end]) for start, end in pairwise(cuts)]
    damaged = bytearray(streams[1])
    damaged[len(damaged) // 2] ^= 255
    path.write_bytes(streams[0] + damaged + streams[2])
    found = read(path)
    (failure,) = [each for each in found if isinstance(each, Failure)]
    assert (failure.id, failure.reason) == (f"books:a.jsonl.bz2:bytes {len(streams[0])}", "damaged_stream")
    assert text[:50_000].decode().endswith(failure.text)
    numbers = [int(each.id.rpartition(":")[2]) for each in found if isinstance(each, Page)]
    before, after = text[:50_000].count(b"\n"), text[100_000:].count(b"\n") - 1
    assert numbers == [*range(before), *range(300 - after, 300)]


@EACH
def test_a_damaged_book_is_a_failure_and_garbage_behind_one_is_another(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt.{ending}"
    data = PACK[ending]((BOOK * 10).encode())
    path.write_bytes(data[:-9])
    (found,) = read(path)
    assert isinstance(found, Failure)
    assert (found.id, found.reason) == (f"books:a.txt.{ending}", "truncated")
    path.write_bytes(data + b"<html>404</html>")
    book, garbage = read(path)
    assert (book.id, book.text.count("Seven geese")) == (f"books:a.txt.{ending}", 10)
    assert isinstance(garbage, Failure)
    assert garbage.reason == "trailing_garbage"


@EACH
@pytest.mark.parametrize("content", ["txt", "jsonl"])
def test_a_bomb_does_not_fill_the_memory(
    content: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("books", "tables"):
        monkeypatch.setattr(f"tokenfree.preprocess.sources.{module}.MAX_BOOK_BYTES", 1_000_000)
    monkeypatch.setattr("tokenfree.preprocess.sources.compression.HELD_BYTES", 1 << 21)
    path = tmp_path / f"a.{content}.{ending}"
    path.write_bytes(PACK[ending](b'{"text": "a"}\n' + b" " * 60_000_000 + b"x"))
    (split,) = plan_splits(PreprocessConfig(books=(str(path),)))
    tracemalloc.start()
    found = list(read_split(split))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [each.reason for each in found if isinstance(each, Failure)] == ["too_large"]
    assert len(found) == (1 if content == "txt" else 2)
    assert peak < 16_000_000


GOOD = b'{"text": "a"}\n'


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        (
            "a.jsonl.gz",
            b"<html>404</html>",
            "a.jsonl.gz: no line has a field 'text', write one JSON object a line",
        ),
        ("a.jsonl", gz(GOOD), "a.jsonl: no line has a field 'text'"),
        ("a.jsonl.xz", lzma.compress(b"[" + GOOD + b"]"), "a.jsonl.xz: no line has a field 'text'"),
        ("a.jsonl.gz", gz(b'{"body": "a"}'), "no line has a field 'text', only body; .*--text_column NAME"),
        ("a.csv.bz2", b"", r"\*\.csv\.bz2 is not read.*--hf-dataset"),
        ("a.parquet.gz", b"", r"\*\.parquet\.gz is not read"),
        ("a.tar.xz", b"", r"\*\.tar\.xz is not read"),
        ("a.tgz", b"", r"\*\.tgz is not read"),
    ],
)
def test_what_is_wrong_with_a_packed_file_is_told(name: str, data: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=told):
        read(tmp_path / name)


def test_the_name_need_not_tell_which_compression_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(lzma.compress(GOOD))
    (tmp_path / "b.jsonl.gz").write_bytes(GOOD)  # unpacked by what downloaded it
    # Longer than what is looked at.
    (tmp_path / "c.jsonl.gz").write_text('{"text": "' + "x" * 300_000 + '"}\n')
    assert [each.text[0] for each in read(tmp_path)] == ["a", "a", "x"]


@pytest.mark.parametrize("name", ["c4.00000-of-01024.json.gz", "a.json"])
def test_lines_may_be_called_json_where_the_file_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gz(GOOD) if name.endswith("gz") else GOOD)
    assert [each.text for each in read(tmp_path / name)] == ["a"]


@pytest.mark.parametrize("name", ["a.ndjson", "b.jl.gz", "c.JSONLINES", "d.ndjson.zst"])
def test_other_endings_of_json_lines(name: str, tmp_path: Path) -> None:
    data = GOOD + b'{"text": "b"}\n'
    ending = name.rpartition(".")[2]
    (tmp_path / name).write_bytes(PACK[ending](data) if ending in PACK else data)
    for path in (tmp_path, tmp_path / name):
        assert [book.text for book in read(path)] == ["a", "b"]
