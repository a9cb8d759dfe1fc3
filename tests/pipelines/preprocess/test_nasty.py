"""Real files that are damaged or odd: each is processed, with the losses counted, or refused in one clear line."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.workflows.cli import main

OPTIONS = [
    "--vocabulary.size",
    "2000",
    "--vocabulary.character_coverage",
    "0.98",
    "--vocabulary.sample_characters",
    "100000",
    "--filters.min_characters",
    "1",
]
REFUSED = {  # file: what the one line says
    "one-byte.xml.bz2": "one-byte.xml.bz2",
    "simplewiki-bitflip.xml.bz2": "simplewiki-bitflip.xml.bz2",
    "zhwiki-broken-1.xml": "hold no document: 3 pages were read (1 missing_title, 2 other_namespace)",
    "zhwiki-broken-2.xml": "hold no document: 3 pages were read (1 missing_ns, 2 other_namespace)",
    "zhwiki-broken-3.xml": "hold no document: 3 pages were read (1 missing_text, 2 other_namespace)",
    "zhwiki-broken-4.xml": "hold no document: 3 pages were read (1 empty, 2 other_namespace)",
}
# File: pages read (a place where something is lost counts as one), and failures by reason.
DUMPS = {
    "bgwiki-utf16le.xml.bz2": (3, {}),
    "enwiki-truncated.xml.bz2": (143, {"truncated": 1}),
    "simplewiki-trailing-garbage.xml.bz2": (8, {"trailing_garbage": 1}),
    "ukwiki-cut-mid-page.xml.bz2": (26, {"truncated": 1}),
    "wikihadoop-revisions-fragment.xml": (3, {}),
}
BOOKS = {
    "blns.txt": {},
    "emoji-test.txt": {},
    "wikitext-Germany.wikitext": {},
    "wikitext-Help-Table.wikitext": {},
    "book-that-is-an-html-404.txt": {"html": 1},
    "hebrew-cantillation-Ruth.osis.xml": {"xml": 1},
}


def preprocess(kind: str, source: Path, output: Path) -> int:
    return main(["preprocess", f"--{kind}", str(source), "--output", str(output), *OPTIONS])


@pytest.mark.parametrize("name", DUMPS)
def test_damaged_dumps(name: str, test_data: Path, tmp_path: Path) -> None:
    pages, failed = DUMPS[name]
    output = tmp_path / "out"
    assert preprocess("wikipedia", test_data / "nasty" / name, output) == 0
    verify(str(output))
    counters = load_manifest(str(output)).counters
    assert counters["failed"] == failed
    assert counters["documents"] >= 1
    assert counters["pages"] == pages
    rows = [
        json.loads(line)
        for path in (output / "failures").glob("*.jsonl")
        for line in path.open(encoding="utf-8")
    ]
    assert Counter(row["reason"] for row in rows) == failed


@pytest.mark.parametrize("name", REFUSED)
def test_dumps_of_which_nothing_is_left(
    name: str, test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preprocess("wikipedia", test_data / "nasty" / name, tmp_path / "out") == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tokenfree")]
    assert len(lines) == 1
    assert REFUSED[name] in lines[0]
    assert not (tmp_path / "out").exists()


def test_odd_books(test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    for name in BOOKS:
        shutil.copy(test_data / "nasty" / name, folder / Path(name).with_suffix(".txt").name)
    output = tmp_path / "out"
    assert preprocess("books", folder, output) == 0
    verify(str(output))
    counters = load_manifest(str(output)).counters
    assert counters["pages"] == len(BOOKS)
    assert counters["failed"] == dict(sum((Counter(reasons) for reasons in BOOKS.values()), Counter()))
    assert counters["documents"] == 4
    assert "2 pages (1 html, 1 xml): see " in capsys.readouterr().out
    assert main(["replay", str(output)]) == 0
    said = capsys.readouterr().out
    assert "2 failed pages tried again: 0 succeed now, 2 do not" in said
    assert "still       1 html" in said


def test_every_nasty_file_is_looked_at(test_data: Path) -> None:
    assert {path.name for path in (test_data / "nasty").iterdir()} == {*DUMPS, *REFUSED, *BOOKS}


def test_one_empty_book_is_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").touch()
    assert (
        main(["preprocess", "--books", str(tmp_path / "empty.txt"), "--output", str(tmp_path / "data")]) == 2
    )
    assert "hold no document: 1 page was read (1 empty)" in capsys.readouterr().err
