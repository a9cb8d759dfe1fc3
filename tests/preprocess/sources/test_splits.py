"""The same pages come however the inputs are named, ordered and cut; what is no input is refused in one line."""

import bz2
import gzip
import hashlib
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, InputSplit, Page
from tokenfree.preprocess.sources.splits import find_inputs, hash_input, plan_splits, read_split

Reader = Callable[..., list[Page | Failure]]


def texts(number: int) -> list[str]:
    rng = random.Random(number)
    return ["".join(rng.choices("abcde fg\n", k=rng.randrange(3000))) for _ in range(number)]


def test_a_multistream_dump_is_cut(make_dump: Callable[..., str], tmp_path: Path, read_all: Reader) -> None:
    """A dump of 60 pages in streams of five, as the official ones. An index next to it is not a dump."""
    head, *pages = make_dump(texts(60)).split("  <page>")
    pages[-1], tail = pages[-1].split("</mediawiki>")
    groups = ["".join(f"  <page>{page}" for page in pages[first : first + 5]) for first in range(0, 60, 5)]
    path = tmp_path / "swwiki-20260101-pages-articles-multistream.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(part.encode()) for part in (head, *groups, f"</mediawiki>{tail}")))
    path.with_name("swwiki-20260101-pages-articles-multistream-index.txt.bz2").write_bytes(
        bz2.compress(b"9:9:9\n")
    )
    whole = read_all(path)
    assert [page.id for page in whole] == [f"swwiki:{number}:{number + 1000}" for number in range(1, 61)]
    for split_bytes in (1000, 7000, 30_000):
        assert read_all(tmp_path, split_bytes=split_bytes) == whole
    assert 2 < len(plan_splits(PreprocessConfig(wikipedia=(str(path),), split_bytes=30_000))) < 8


def test_a_single_stream_is_one_split(
    make_dump: Callable[..., str], tmp_path: Path, read_all: Reader
) -> None:
    xml = make_dump(texts(40)).encode()
    plain = tmp_path / "swwiki.xml"
    plain.write_bytes(xml)
    whole = read_all(plain)
    assert len(whole) == 40
    assert len(plan_splits(PreprocessConfig(wikipedia=(str(plain),), split_bytes=9000))) > 5
    assert read_all(plain, split_bytes=1000) == whole
    for suffix, compress in (("bz2", bz2.compress), ("gz", gzip.compress), ("xz", lzma.compress)):
        path = tmp_path / f"swwiki.xml.{suffix}"
        path.write_bytes(compress(xml))
        (split,) = plan_splits(PreprocessConfig(wikipedia=(str(path),), split_bytes=9000))
        assert split.format == suffix
        assert list(read_split(split)) == whole


def test_utf_16_dumps_come_as_one_split(
    make_dump: Callable[..., str], tmp_path: Path, read_all: Reader
) -> None:
    xml = make_dump(["Дом 🏠", "cat"])
    path = tmp_path / "swwiki.xml"
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        path.write_bytes(xml.encode(encoding))
        assert [page.text for page in read_all(path, split_bytes=1000)] == ["Дом 🏠", "cat"]
    broken = xml.encode("utf-16").replace("cat".encode("utf-16-le"), b"c\0\0\xdct\0")
    path.write_bytes(broken)
    found = read_all(path)
    assert [getattr(each, "reason", None) for each in found] == [None, "bad_encoding"]


def test_names_of_files_win_over_siteinfo(make_dump: Callable[..., str], tmp_path: Path) -> None:
    for name, expected in {
        "viwiki-20230501.xml": ("viwiki", "vi"),
        "simplewiki.xml": ("simplewiki", "en"),
        "commons.xml": ("swwiki", "sw"),
    }.items():
        (tmp_path / name).write_text(make_dump(["a"]))
        (split,) = plan_splits(PreprocessConfig(wikipedia=(str(tmp_path / name),)))
        assert split.site is not None
        assert (split.site.database, split.site.language) == expected
        assert split.site.namespaces[6][0] == "Picha"
        (split,) = plan_splits(PreprocessConfig(wikipedia=(str(tmp_path / name),), language="xh"))
        assert split.site is not None
        assert (split.site.database, split.site.language) == (expected[0], "xh")


def test_splits_do_not_depend_on_how_the_inputs_are_named(
    make_dump: Callable[..., str], tmp_path: Path
) -> None:
    for code in ("sw", "de", "fr"):
        (tmp_path / f"{code}wiki.xml").write_text(make_dump(texts(9)))
    (tmp_path / "swwiki-index.txt").write_text("1:1:a")
    names = [str(tmp_path / f"{code}wiki.xml") for code in ("sw", "de", "fr")]
    plans = [
        plan_splits(PreprocessConfig(wikipedia=tuple(paths), split_bytes=5000))
        for paths in (
            names,
            names[::-1],
            [*names, *names],
            [str(tmp_path)],
            [f"{tmp_path}/*wiki*"],
            [*names, str(tmp_path)],
        )
    ]
    assert all(plan == plans[0] for plan in plans)
    lines = [split.to_json() for split in plans[0]]
    assert len(set(lines)) == len(lines) > 5
    assert [InputSplit.from_json(line) for line in lines] == plans[0]


def test_inputs_lie_on_any_file_system(
    make_dump: Callable[..., str], tmp_path: Path, read_all: Reader
) -> None:
    data = bz2.compress(make_dump(texts(9)).encode())
    (tmp_path / "swwiki.xml.bz2").write_bytes(data)
    fs = fsspec.filesystem("memory")
    try:
        fs.pipe_file("/dumps/swwiki.xml.bz2", data)
        fs.pipe_file("/books/de/buch.txt", b"Es war einmal.")
        local = read_all(tmp_path / "swwiki.xml.bz2")
        for path in ("memory://dumps/swwiki.xml.bz2", "memory://dumps", "memory://dumps/*.bz2"):
            assert read_all(path) == local
        (split,) = plan_splits(PreprocessConfig(books=("memory://books",)))
        assert [(page.id, page.language) for page in read_split(split) if isinstance(page, Page)] == [
            ("books:de/buch.txt", "de")
        ]
        for path in ("memory://dumps/swwiki.xml.bz2", str(tmp_path / "swwiki.xml.bz2")):
            (file,) = find_inputs(PreprocessConfig(wikipedia=(path,)))
            assert hash_input(file) == (len(data), hashlib.sha256(data).hexdigest())
    finally:
        fs.rm("/dumps", recursive=True)
        fs.rm("/books", recursive=True)


def test_a_changed_input_changes_its_splits(make_dump: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "swwiki.xml"
    config = PreprocessConfig(wikipedia=(str(path),))
    path.write_text(make_dump(["a"]))
    (before,) = plan_splits(config)
    path.write_text(make_dump(["b"]))
    (after,) = plan_splits(config)
    assert before.versions != after.versions
    assert before.to_json() != after.to_json()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("swwiki.xml.bz2", b"x"),
        ("swwiki.xml", b""),
        ("swwiki.xml.bz2", bz2.compress(b"<html>")),
        ("swwiki.xml", b"<mediawiki version='0.11'></mediawiki>"),
        ("swwiki.xml.bz2", bz2.compress(b"<page>")[:-15]),
        ("swwiki.xml.7z", b"7z\xbc\xaf'\x1c123"),
    ],
)
def test_what_is_no_dump_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="no page of a MediaWiki XML dump can be read") as error:
        plan_splits(PreprocessConfig(wikipedia=(str(tmp_path / name),)))
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "path", "message"),
    [
        ("wikipedia", "nowhere.xml", "no such file"),
        ("wikipedia", "*.bz2", "matches no dumps"),
        ("wikipedia", "nowhere://x/y", "nowhere"),
        ("wikipedia", ".", "is a folder without dumps"),
        ("books", ".", "is a folder without books"),
    ],
)
def test_paths_without_files_are_refused(field: str, path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "cover.jpg").write_bytes(b"x")
    given = path if "://" in path else str(tmp_path / path)
    with pytest.raises(UserError, match=message) as error:
        plan_splits(
            PreprocessConfig(wikipedia=(given,)) if field == "wikipedia" else PreprocessConfig(books=(given,))
        )
    assert str(error.value).startswith(field)
    assert "\n" not in str(error.value)


def test_no_input_is_refused() -> None:
    with pytest.raises(UserError, match="no input"):
        plan_splits(PreprocessConfig())


def test_a_dump_among_the_books_is_refused(make_dump: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "swwiki.xml"
    path.write_text(make_dump(["a"]))
    with pytest.raises(
        UserError, match=r"books: .*swwiki\.xml is named like a Wikipedia dump; give it to wikipedia"
    ):
        plan_splits(PreprocessConfig(books=(str(path),)))


def test_inputs_without_anything_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(UserError, match="the inputs are empty"):
        plan_splits(PreprocessConfig(books=(str(tmp_path),)))


@pytest.mark.parametrize("language", ["english", "e", "en us", "de!", ""])
def test_what_is_no_language_is_refused(language: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Honk.")
    with pytest.raises(UserError, match="is not a language tag"):
        plan_splits(PreprocessConfig(books=(str(tmp_path),), language=language))


@pytest.mark.parametrize("path", ["", " "])
@pytest.mark.parametrize("field", ["wikipedia", "books"])
def test_an_empty_path_is_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a book")
    (tmp_path / "a.xml").write_text("<mediawiki>")
    with pytest.raises(UserError, match=f"{field}: a path is empty"):
        find_inputs(build(PreprocessConfig, {field: [path]}, source="test"))
