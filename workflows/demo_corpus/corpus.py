"""Writes the demo corpus: a Wikipedia dump for each language and a folder of books, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import platform
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tokenfree.preprocess.common.errors import UserError
from tokenfree.workflows.demo_corpus.books import books
from tokenfree.workflows.demo_corpus.code_tables import table_pages
from tokenfree.workflows.demo_corpus.dump_writer import DemoPage, index_path, replacing, write_dump
from tokenfree.workflows.demo_corpus.help_topics import topic_pages
from tokenfree.workflows.demo_corpus.module_docs import standard_library
from tokenfree.workflows.demo_corpus.module_pages import module_pages
from tokenfree.workflows.demo_corpus.own_pages import own_pages, with_surroundings
from tokenfree.workflows.demo_corpus.repeats import Repeats
from tokenfree.workflows.demo_corpus.sites import SITES
from tokenfree.workflows.demo_corpus.unicode_pages import unicode_pages

NUM_MODULE_BOOKS = 8
MAX_SHARE_OF_TABLES = 0.25  # of the characters: names of characters are many, but say little
MIN_TABLES = 500_000  # characters, so that there is something to learn from on a Python without its sources and help
_MARK = "demo-corpus.json"

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class DemoCorpus:
    """The files of a demo corpus; `pages` and `characters` count its articles (no redirects, no talk) and books."""

    wikipedia: tuple[Path, ...]
    books: tuple[Path, ...]
    pages: int
    characters: int


def write_demo_corpus(folder: Path, progress: Progress | None = None) -> DemoCorpus:
    """Write the corpus into `folder`, or do nothing where the same corpus is already there, whole.

    `progress(done, total, what)` is called after each file. The mark of completion, with the size of each file, is
    written last; every file appears under its name only when it is whole.

    Raises:
        UserError: the folder cannot be written to.
    """
    existing = _read_mark(folder)
    if existing is not None:
        return existing
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).unlink(missing_ok=True)
        return _write(folder, progress)
    except OSError as error:
        raise UserError(f"{folder}: cannot write the demo corpus ({error.strerror}); choose another folder") from error


def _write(folder: Path, progress: Progress | None) -> DemoCorpus:
    shelf, wikis = _contents()
    done, total = 0, len(shelf) + len(wikis)
    wikipedia, written = [], []
    for language, pages in wikis.items():
        path = folder / f"{language}wiki-demo-pages-articles-multistream.xml.bz2"
        write_dump(path, with_surroundings(pages, SITES[language]), SITES[language])
        wikipedia.append(path)
        done += 1
        if progress:
            progress(done, total, path.name)
    (folder / "books" / "en").mkdir(parents=True, exist_ok=True)
    for name, text in shelf.items():
        path = folder / "books" / "en" / f"{name}.txt"
        with replacing(path) as file:
            file.write(text.encode())
        written.append(path)
        done += 1
        if progress:
            progress(done, total, path.name)
    articles = [page for page in chain.from_iterable(wikis.values()) if not page.redirect]
    characters = sum(len(page.text) for page in articles) + sum(map(len, shelf.values()))
    corpus = DemoCorpus(tuple(wikipedia), tuple(written), len(articles), characters)
    _write_mark(folder, corpus)
    return corpus


def _contents() -> tuple[dict[str, str], dict[str, list[DemoPage]]]:
    """The books by name and the articles and redirects by language."""
    repeats = Repeats()
    modules = list(standard_library())
    longest = sorted(modules, key=lambda module: (-module.characters, module.name))[:NUM_MODULE_BOOKS]
    shelf = books(longest, repeats)
    wikis = {language: own_pages(language) for language in SITES}
    english = [
        *wikis["en"],
        *topic_pages(repeats),
        *module_pages((module for module in modules if module not in longest), repeats),
    ]
    text = sum(len(page.text) for page in english) + sum(map(len, shelf.values()))
    tables = max(MIN_TABLES, int(text * MAX_SHARE_OF_TABLES / (1 - MAX_SHARE_OF_TABLES)))
    english += _within(chain(table_pages(), unicode_pages()), tables)
    # Real dumps are in no order of topics, and neither is this one; a title comes once.
    by_title = {page.title: page for page in english}
    wikis["en"] = sorted(by_title.values(), key=lambda page: hashlib.blake2b(page.title.encode()).digest())
    return shelf, wikis


def _within(pages: Iterable[DemoPage], num_characters: int) -> list[DemoPage]:
    """The first pages that together have at most so many characters."""
    chosen = []
    for page in pages:
        num_characters -= len(page.text)
        if num_characters < 0:
            break
        chosen.append(page)
    return chosen


def _origin() -> str:
    """What the bytes of the corpus depend on: this package and the Python that it runs on."""
    package = Path(__file__).parent
    files = sorted((*package.glob("*.py"), *package.glob("pages/*/*.wikitext")), key=lambda path: path.as_posix())
    digest = hashlib.blake2b(f"{platform.python_version()} {unicodedata.unidata_version}".encode(), digest_size=16)
    for path in files:
        digest.update(hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def _write_mark(folder: Path, corpus: DemoCorpus) -> None:
    files = [*corpus.wikipedia, *map(index_path, corpus.wikipedia), *corpus.books]
    mark = {
        "origin": _origin(),
        "wikipedia": [path.relative_to(folder).as_posix() for path in corpus.wikipedia],
        "books": [path.relative_to(folder).as_posix() for path in corpus.books],
        "pages": corpus.pages,
        "characters": corpus.characters,
        "bytes": {path.relative_to(folder).as_posix(): path.stat().st_size for path in files},
    }
    with replacing(folder / _MARK) as file:
        file.write((json.dumps(mark, indent=2) + "\n").encode())


def _read_mark(folder: Path) -> DemoCorpus | None:
    """The corpus that stands in `folder`, if it is whole and what this version would write."""
    try:
        mark = json.loads((folder / _MARK).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in mark["bytes"].items())
        if not whole or mark["origin"] != _origin():
            return None
        return DemoCorpus(
            wikipedia=tuple(folder / name for name in mark["wikipedia"]),
            books=tuple(folder / name for name in mark["books"]),
            pages=mark["pages"],
            characters=mark["characters"],
        )
    except (OSError, ValueError, KeyError):
        return None
