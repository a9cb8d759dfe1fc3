"""Real dumps and books, whole and damaged: every page is there, whatever the cut, and each loss has its reason."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, Page
from tokenfree.preprocess.sources.splits import plan_splits, read_split

Reader = Callable[..., list[Page | Failure]]
PAGES = {
    "aawiki-20260101-pages-meta-current.xml.bz2": 507,
    "bnwiki-20230501-excerpt.xml.bz2": 600,
    "enwiki-2016-shortened.xml.bz2": 206,
    "enwiki-table-markup.xml.bz2": 5,
    "jawiki-20230501-excerpt.xml.bz2": 120,
    "ltgwiki-pages-articles.xml.bz2": 2004,
    "simplewiki-excerpt.xml": 7,
    "ukwiki-20230501-excerpt.xml.bz2": 532,
    "viwiki-20230501-excerpt-multistream.xml.bz2": 970,
    "zhwiki-excerpt.xml": 33,
}
NASTY = {
    "bgwiki-utf16le.xml.bz2": (3, []),
    "enwiki-truncated.xml.bz2": (142, ["truncated"]),
    "simplewiki-trailing-garbage.xml.bz2": (7, ["trailing_garbage"]),
    "ukwiki-cut-mid-page.xml.bz2": (25, ["truncated"]),
    "wikihadoop-revisions-fragment.xml": (3, []),
    "zhwiki-broken-1.xml": (2, ["missing_title"]),
    "zhwiki-broken-2.xml": (2, ["missing_ns"]),
    "zhwiki-broken-3.xml": (2, ["missing_text"]),
    "zhwiki-broken-4.xml": (3, []),
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_a_dump_is_read_once(name: str, test_data: Path, read_all: Reader) -> None:
    found = read_all(test_data / "wiki-dumps" / name, split_bytes=1_000_000)
    pages = [page for page in found if isinstance(page, Page)]
    assert len(pages) == len(found) == len({page.id for page in pages}) == PAGES[name]
    assert {page.site.database for page in pages if page.site} == {name.partition("-")[0]}
    assert all(page.title and page.text.encode() is not None for page in pages)


def test_multistream_pages_do_not_depend_on_the_cut(test_data: Path, read_all: Reader) -> None:
    path = test_data / "wiki-dumps" / "viwiki-20230501-excerpt-multistream.xml.bz2"
    assert read_all(path, split_bytes=700_000) == read_all(path)


def test_the_minidumps_are_known_by_their_names(test_data: Path) -> None:
    splits = plan_splits(PreprocessConfig(wikipedia=(str(test_data / "wiki-dumps" / "minidumps"),)))
    languages = {split.site.database: split.site.language for split in splits if split.site}
    assert len(languages) == len(splits) == 56
    assert (languages["alswiki"], languages["nowiki"], languages["simplewiki"]) == ("gsw", "nb", "en")
    assert sum(len(list(read_split(split))) for split in splits) == 64


@pytest.mark.parametrize("name", NASTY)
def test_damaged_dumps_give_what_is_whole_and_count_what_is_lost(
    name: str, test_data: Path, read_all: Reader
) -> None:
    found = read_all(test_data / "nasty" / name)
    num_pages, reasons = NASTY[name]
    assert sum(isinstance(each, Page) for each in found) == num_pages
    assert [each.reason for each in found if isinstance(each, Failure)] == reasons


@pytest.mark.parametrize(
    "name", ["simplewiki-bitflip.xml.bz2", "one-byte.xml.bz2", "hebrew-cantillation-Ruth.osis.xml"]
)
def test_dumps_without_a_readable_page_are_refused(name: str, test_data: Path, read_all: Reader) -> None:
    with pytest.raises(UserError, match=re.escape(name)):
        read_all(test_data / "nasty" / name)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=20),
    cut=st.floats(0, 1),
)
def test_damaged_real_dumps_never_raise_and_do_not_depend_on_the_cut(
    changes: list[tuple[float, int]],
    cut: float,
    test_data: Path,
    tmp_path: Path,
    read_cut: Callable[..., list[Page | Failure]],
) -> None:
    name = "zhwiki-broken-1.xml" if len(changes) % 2 else "ukwiki-cut-mid-page.xml.bz2"
    whole = test_data / "nasty" / name
    (split,) = plan_splits(PreprocessConfig(wikipedia=(str(whole),)))
    data = bytearray(whole.read_bytes())
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    damaged = tmp_path / name
    damaged.write_bytes(data)
    split = replace(split, inputs=(str(damaged),))
    found = list(read_split(split))
    # A last range without a tag cannot know whether it is within a page, and so not whether the dump's end is
    # missing.
    last = data.rfind(b"</page>") if name.endswith(".xml") else split.end
    assert found == read_cut(split, [min(int(cut * split.end), last)])
    assert len(found) >= 1


def test_books_of_real_life(test_data: Path) -> None:
    folders = (str(test_data / "books"), str(test_data / "books-gutenberg"))
    splits = plan_splits(PreprocessConfig(books=folders, split_bytes=1_000_000))
    assert 5 < len(splits) < 12
    books = [book for split in splits for book in read_split(split)]
    assert all(isinstance(book, Page) for book in books)
    by_id = {book.id: book for book in books if isinstance(book, Page)}
    assert len(by_id) == len(books) == 25
    assert {name: by_id[f"books:{name}"].language for name in ("de/spyri_heidi1.txt", "en_carmilla.txt")} == {
        "de/spyri_heidi1.txt": "de",
        "en_carmilla.txt": "en",
    }
    assert by_id["books:zh_shen_yin_yu.txt"].title == "呻吟語"
    for book in by_id.values():
        assert "Project Gutenberg" not in book.text
        assert "\r" not in book.text
        assert not book.text.startswith("\ufeff")
    heidi = by_id["books:de/spyri_heidi1.txt"].text.split("\n")
    assert max(map(len, heidi)) > 500
    carmilla = by_id["books:en_carmilla.txt"].text
    assert "PROLOGUE\nCHAPTER I. An Early Fright\nCHAPTER II. A Guest\n" in carmilla
    assert "bears this name. With" in carmilla or max(map(len, carmilla.split("\n"))) > 500


def test_files_that_are_no_books_fail_by_name(test_data: Path) -> None:
    names = ["book-that-is-an-html-404.txt", "hebrew-cantillation-Ruth.osis.xml", "blns.txt"]
    paths = tuple(str(test_data / "nasty" / name) for name in names)
    found = list(itertools.chain.from_iterable(map(read_split, plan_splits(PreprocessConfig(books=paths)))))
    reasons = {each.id: getattr(each, "reason", None) for each in found}
    assert reasons == dict(zip((f"books:{name}" for name in names), ("html", "xml", None), strict=True))
