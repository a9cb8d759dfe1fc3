"""Writes the demo corpus, in English: a small Wikipedia dump of our own pages, and Python's documentation as books.

The same environment gives the same bytes every time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import write_atomically
from tokenfree.workflows.demo_corpus.docstrings import PACKAGES, books
from tokenfree.workflows.demo_corpus.dump_writer import DemoPage, write_dump

CHARACTERS = 3_250_000  # of the books; about as much as the demo trains on in a minute
PAGES = Path(__file__).parent / "pages"
_DUMP = "enwiki-demo-pages-articles-multistream.xml.bz2"
_BOOKS = "docstrings.jsonl"
_MARK = "demo-corpus.json"
_REDIRECT = re.compile(r"#REDIRECT \[\[([^\]|#]+)")


@dataclass(frozen=True)
class DemoCorpus:
    """The files of a demo corpus; `documents` and `characters` count its articles (no redirects) and books."""

    wikipedia: tuple[Path, ...]
    books: tuple[Path, ...]
    documents: int
    characters: int


def write_demo_corpus(folder: Path) -> DemoCorpus:
    """Write the corpus into `folder`, unless the same corpus is already there.

    The mark of completion is written last.

    Raises:
        UserError: the folder cannot be written to.
    """
    dump, shelf, mark = folder / _DUMP, folder / "books" / "en" / _BOOKS, folder / _MARK
    try:
        counts = _counts(mark)
        if counts is None:
            shelf.parent.mkdir(parents=True, exist_ok=True)
            mark.unlink(missing_ok=True)
            counts = _write(dump, shelf)
            write_atomically(mark, json.dumps({"origin": _origin(), **counts}, indent=2) + "\n")
    except OSError as error:
        raise UserError(
            f"The demo corpus cannot be written to {folder}: {error.strerror}. Choose another folder."
        ) from error
    return DemoCorpus((dump,), (shelf,), **counts)


def own_pages() -> list[DemoPage]:
    """The pages of `pages/` by title: articles, redirects, and a template and a talk page as real dumps hold them."""
    pages = []
    for path in sorted(PAGES.glob("*.wikitext")):
        text = path.read_text(encoding="utf-8").rstrip("\n")
        found = _REDIRECT.match(text)
        pages.append(DemoPage(path.stem, text, redirect=found[1] if found else None))
    template = "<includeonly>This article is about {{{1|}}}.</includeonly><noinclude>{{documentation}}</noinclude>"
    return [
        *pages,
        DemoPage("Template:About", template, namespace=10),
        DemoPage("Talk:Rain", "== Drops ==\nAre they really round? ~~~~", namespace=1),
    ]


def _write(dump: Path, shelf: Path) -> dict[str, int]:
    """Write the files; the number of documents, and of their characters."""
    pages = own_pages()
    write_dump(dump, pages)
    sizes = [len(page.text) for page in pages if page.namespace == 0 and not page.redirect]
    lines, left = [], CHARACTERS
    for name, text in books():
        lines.append(json.dumps({"id": name, "text": text}) + "\n")
        sizes.append(len(text))
        left -= len(text)
        if left < 0:
            break
    write_atomically(shelf, "".join(lines))
    return {"documents": len(sizes), "characters": sum(sizes)}


def _origin() -> str:
    """What the bytes of the corpus depend on: this package, Python, and the packages whose docstrings are read."""
    digest = hashlib.blake2b(platform.python_version().encode(), digest_size=16)
    for name in PACKAGES:
        digest.update(importlib.metadata.version(name).encode())
    for path in sorted(Path(__file__).parent.rglob("*.*")):
        if path.suffix in (".py", ".wikitext"):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _counts(mark: Path) -> dict[str, int] | None:
    """The counts of the corpus that stands beside `mark`, if it is whole and what this version would write."""
    try:
        found = json.loads(mark.read_text(encoding="utf-8"))
        return found if found.pop("origin") == _origin() else None
    except (FileNotFoundError, ValueError, KeyError):
        return None
