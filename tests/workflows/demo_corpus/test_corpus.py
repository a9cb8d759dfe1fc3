"""The demo corpus as a whole: English prose, no book twice, the same bytes every time, readable by our own readers."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Page
from tokenfree.preprocess.sources.splits import plan_splits, read_split
from tokenfree.preprocess.wikitext.cleaner import clean
from tokenfree.workflows.demo_corpus import corpus
from tokenfree.workflows.demo_corpus.corpus import (
    BOOK_CHARACTERS,
    DemoCorpus,
    bundled_pages,
    paragraphs,
    write_demo_corpus,
)


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """A corpus that takes a second to write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "CHARACTERS", 200_000)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def written(folder: Path) -> DemoCorpus:
    return write_demo_corpus(folder)


def books_of(written: DemoCorpus) -> dict[str, str]:
    (path,) = written.books
    found = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {book["id"]: book["text"] for book in found}


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def test_the_same_bytes_every_time(folder: Path, written: DemoCorpus, tmp_path: Path) -> None:
    again = write_demo_corpus(tmp_path)
    assert digests(tmp_path) == digests(folder)
    assert (again.documents, again.characters) == (written.documents, written.characters)


def test_a_whole_corpus_is_left_alone_and_an_unfinished_one_written_again(
    folder: Path, written: DemoCorpus
) -> None:
    before, (book,) = digests(folder), written.books
    time = book.stat().st_mtime_ns
    assert write_demo_corpus(folder) == written
    assert book.stat().st_mtime_ns == time
    book.write_bytes(b"cut")
    (folder / "demo-corpus.json").unlink()
    assert write_demo_corpus(folder) == written
    assert digests(folder) == before


def test_books_are_english_prose(written: DemoCorpus) -> None:
    books = books_of(written)
    lines = [line for text in books.values() for line in text.splitlines()]
    assert len(books) > 20
    assert len(set(lines)) == len(lines)
    assert all(line.isascii() and line[0].isupper() and line.rstrip(")\"'")[-1] in ".?!" for line in lines)
    assert all(len(text) >= BOOK_CHARACTERS for text in books.values())
    assert 200_000 < sum(map(len, books.values())) < 300_000


def test_our_own_readers_find_what_was_written(folder: Path, written: DemoCorpus) -> None:
    config = PreprocessConfig(
        wikipedia=tuple(map(str, written.wikipedia)), books=tuple(map(str, written.books))
    )
    pages = [page for split in plan_splits(config) for page in read_split(split)]
    found = [page for page in pages if isinstance(page, Page) and page.namespace == 0 and not page.redirect]
    assert len(pages) == len(bundled_pages()) + len(books_of(written))
    assert len(found) == written.documents
    assert sum(len(page.text) for page in found) == written.characters
    assert {page.language for page in found} == {"en"}
    for page in found:
        if page.site is not None:
            assert len(clean(page.text, page.site)) > 200


def test_our_own_pages_hold_real_markup() -> None:
    pages = bundled_pages()
    articles = [page for page in pages if page.namespace == 0 and not page.redirect]
    assert {page.namespace for page in pages} == {0, 1, 10}
    assert {page.redirect for page in pages if page.redirect} <= {page.title for page in articles}
    markup = "".join(page.text for page in articles)
    assert all(sign in markup for sign in ("{|", "<ref", "{{", "[[", "\n== "))


DOCSTRING = """Return the mean of the values that are in the sample.

    >>> mean([1, 2])
    1.5

    Parameters
    ----------
    values : array_like
        The values of the sample, of which :class:`~.set` is the
        usual type.

    Args:
        axis (int): The axis along which the means are taken. This is
            the last one by default.

    - If it is *empty*, then the ``null`` is returned by the function.
    - lower case is not the beginning of a sentence.

    .. versionadded:: 3.4
    The names are π and ρ, which are letters of the Greek alphabet.
"""


def test_prose_is_taken_out_of_a_docstring() -> None:
    assert list(paragraphs(DOCSTRING)) == [
        "Return the mean of the values that are in the sample.",
        "The values of the sample, of which set is the usual type.",
        "The axis along which the means are taken. This is the last one by default.",
        "If it is empty, then the null is returned by the function.",
    ]


def test_a_python_without_help_topics_and_sources_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "empty"))
    assert {name.partition(".")[0] for name in books_of(write_demo_corpus(tmp_path / "demo"))} == {"numpy"}


def test_a_folder_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="Choose another folder"):
        write_demo_corpus(tmp_path / "file" / "demo")
