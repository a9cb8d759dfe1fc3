"""The demo corpus as a whole: many languages, real markup, no empty page, the same bytes every time."""

import bz2
import hashlib
import importlib
import re
import sys
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records.document import Failure
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.sources.input_splits import plan_splits, read_split
from tokenfree.preprocess.wikitext.cleaner import clean
from tokenfree.workflows.demo_corpus.corpus import MAX_SHARE_OF_TABLES, DemoCorpus, write_demo_corpus
from tokenfree.workflows.demo_corpus.dump_writer import index_path
from tokenfree.workflows.demo_corpus.own_pages import own_pages
from tokenfree.workflows.demo_corpus.sites import SITES

NAMESPACE = "{http://www.mediawiki.org/xml/export-0.11/}"
SCRIPTS = {  # how the names of the letters of a language begin
    "en": "LATIN", "de": "LATIN", "fr": "LATIN", "es": "LATIN", "sw": "LATIN", "vi": "LATIN", "tr": "LATIN",
    "ru": "CYRILLIC", "el": "GREEK", "ar": "ARABIC", "he": "HEBREW", "hi": "DEVANAGARI", "bn": "BENGALI", "th": "THAI",
    "zh": "CJK", "ja": "HIRAGANA KATAKANA CJK", "ko": "HANGUL", "am": "ETHIOPIC",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def corpus(folder: Path) -> DemoCorpus:
    return write_demo_corpus(folder)


@pytest.fixture(scope="module")
def pages(corpus: DemoCorpus) -> dict[str, list[ElementTree.Element]]:
    roots = {path.name[:2]: ElementTree.fromstring(bz2.decompress(path.read_bytes())) for path in corpus.wikipedia}
    return {language: list(root.iter(f"{NAMESPACE}page")) for language, root in roots.items()}


def text_of(page: ElementTree.Element) -> str:
    return page.findtext(f"{NAMESPACE}revision/{NAMESPACE}text", "")


def articles(pages: list[ElementTree.Element]) -> list[ElementTree.Element]:
    main = (page for page in pages if page.findtext(f"{NAMESPACE}ns") == "0")
    return [page for page in main if page.find(f"{NAMESPACE}redirect") is None]


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_bytes_every_time(folder: Path, corpus: DemoCorpus, tmp_path: Path) -> None:
    again = write_demo_corpus(tmp_path)
    assert digests(tmp_path) == digests(folder)
    assert (again.pages, again.characters) == (corpus.pages, corpus.characters)


def test_a_whole_corpus_is_left_alone_and_a_broken_one_written_again(folder: Path, corpus: DemoCorpus) -> None:
    before, times = digests(folder), {path: path.stat().st_mtime_ns for path in corpus.wikipedia}
    assert write_demo_corpus(folder) == corpus
    assert {path: path.stat().st_mtime_ns for path in corpus.wikipedia} == times
    corpus.wikipedia[3].write_bytes(b"cut")
    assert write_demo_corpus(folder) == corpus
    assert digests(folder) == before


def test_progress_reaches_the_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenfree.workflows.demo_corpus.corpus.standard_library", lambda: iter(()))
    seen: list[tuple[int, int, str]] = []
    corpus = write_demo_corpus(tmp_path, lambda *step: seen.append(step))
    num_files = len(corpus.wikipedia) + len(corpus.books)
    assert [done for done, _, _ in seen] == list(range(1, num_files + 1))
    assert {total for _, total, _ in seen} == {num_files}


def test_counts_and_size(corpus: DemoCorpus, pages: dict[str, list[ElementTree.Element]]) -> None:
    found = [page for language in pages for page in articles(pages[language])]
    in_books = sum(len(path.read_text(encoding="utf-8")) for path in corpus.books)
    assert corpus.pages == len(found)
    assert corpus.characters == sum(len(text_of(page)) for page in found) + in_books
    assert 3_000_000 < corpus.characters < 8_000_000


def test_no_page_or_book_is_empty_and_no_title_comes_twice(
    corpus: DemoCorpus, pages: dict[str, list[ElementTree.Element]]
) -> None:
    assert all(len(path.read_text(encoding="utf-8")) > 200 for path in corpus.books)
    for found in pages.values():
        assert all(len(text_of(page)) > 8 for page in found)
        assert min(len(text_of(page)) for page in articles(found)) > 300
        titles = [page.findtext(f"{NAMESPACE}title", "") for page in found]
        assert len(set(titles)) == len(titles)
        assert not [title for title in titles if re.search(r"[\[\]{}|<>#]", title)]


def test_names_and_tables_are_less_than_a_third(pages: dict[str, list[ElementTree.Element]]) -> None:
    found = [(page.findtext(f"{NAMESPACE}title", ""), len(text_of(page))) for page in articles(pages["en"])]
    tables = sum(size for title, size in found if title.endswith("(Unicode block)") or title.startswith("Code page"))
    assert 0.1 < tables / sum(size for _, size in found) < MAX_SHARE_OF_TABLES + 0.05


@pytest.mark.parametrize("language", sorted(SITES))
def test_each_language_has_articles_in_its_own_script(
    language: str, pages: dict[str, list[ElementTree.Element]]
) -> None:
    own = [page for page in own_pages(language) if not page.redirect]
    assert len(own) >= 3
    for page in own:
        letters = [unicodedata.name(letter, "") for letter in page.text if letter.isalpha()]
        share = sum(name.startswith(tuple(SCRIPTS[language].split())) for name in letters) / len(letters)
        assert share > 0.6, page.title
        assert page.title == unicodedata.normalize("NFC", page.title)
        assert page.text.count("{{") == page.text.count("}}")
        assert page.text.count("[[") == page.text.count("]]")
        assert page.text.count("{|") == page.text.count("\n|}")
    namespaces = {page.findtext(f"{NAMESPACE}ns") for page in pages[language]}
    assert {"0", "1", "4", "10", "14"} <= namespaces
    assert [page for page in pages[language] if page.find(f"{NAMESPACE}redirect") is not None]
    markup = "".join(page.text for page in own)
    assert all(sign in markup for sign in ("{|", "<ref", "{{", "[[", "\n== "))


def test_a_redirect_of_our_own_leads_to_an_article() -> None:
    for language in SITES:
        found = own_pages(language)
        titles = {page.title for page in found if not page.redirect}
        assert {page.redirect for page in found if page.redirect} <= titles


def test_prefixes_of_pages_are_the_names_of_their_namespaces(pages: dict[str, list[ElementTree.Element]]) -> None:
    for language, found in pages.items():
        for page in found:
            number = int(page.findtext(f"{NAMESPACE}ns", ""))
            if number:
                prefix = page.findtext(f"{NAMESPACE}title", "").partition(":")[0]
                assert prefix == SITES[language].namespaces[number]


def test_a_python_without_help_topics_licence_and_sources_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "empty"))
    with pytest.raises(ImportError):
        importlib.import_module("pydoc_data.topics")
    corpus = write_demo_corpus(tmp_path / "demo")
    assert len(corpus.wikipedia) == len(SITES)
    assert [path.stem for path in corpus.books] == ["built-in-objects"]
    assert corpus.pages > 3 * len(SITES)
    assert corpus.characters > 500_000


def test_a_folder_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="choose another folder"):
        write_demo_corpus(tmp_path / "file" / "demo")


def test_each_dump_has_its_index_and_the_big_one_many_streams(
    corpus: DemoCorpus, pages: dict[str, list[ElementTree.Element]]
) -> None:
    for path in corpus.wikipedia:
        language = path.name[:2]
        lines = bz2.decompress(index_path(path).read_bytes()).decode().splitlines()
        streams = {line.partition(":")[0] for line in lines}
        assert len(lines) == len(pages[language])
        assert len(streams) == -(-len(lines) // 100)
        assert len(streams) > 5 or language != "en"


def test_our_own_readers_find_what_was_written(folder: Path, corpus: DemoCorpus) -> None:
    wikipedia = tuple(map(str, corpus.wikipedia))
    config = PreprocessConfig(wikipedia=wikipedia, books=(str(folder / "books"),), split_bytes=500_000)
    pages = [page for split in plan_splits(config) for page in read_split(split)]
    assert not [page for page in pages if isinstance(page, Failure)]
    found = [page for page in pages if isinstance(page, Page) and page.namespace == 0 and not page.redirect]
    assert len(found) == corpus.pages + len(corpus.books)
    assert {page.language for page in found} == set(SITES)
    assert {page.language for page in found if page.kind == "plain"} == {"en"}
    for page in found:
        if page.site is not None and page.language != "en":
            assert len(clean(page.text, page.site)) > 200
