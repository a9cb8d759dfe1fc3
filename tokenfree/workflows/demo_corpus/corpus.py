"""The demo corpus, in English: a small Wikipedia dump of our own pages, and docstrings as books.

Sources are read as text, so no module is imported. The same environment gives the same bytes.
"""

import bz2
import importlib
import importlib.util
import json
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically

# Dependencies with long docstrings, in the order in which they fill the corpus.
PACKAGES = ("numpy", "scipy", "sklearn", "matplotlib", "apache_beam", "ray", "torch")
BOOK_CHARACTERS = 1500  # minimum length; shorter books have hardly any context
_LEFT_OUT = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "encodings",
    "pydoc_data",
    "turtledemo",
}
_LEFT_OUT |= {"_vendor", "_vendored", "thirdparty", "externals", "testing"}

_OPENING = re.compile(r"^[ \t]*[rR]?(\"\"\"|''')", re.MULTILINE)
_ITEM = re.compile(r"(?:[*•-]|\(?\d{1,2}[.)]|\*{0,2}[\w.]+(?: ?\([^)]*\))?:)\s+(?=\S)")
_MARKUP = re.compile(
    r"(?::[\w:]+:)?`~?\.?([^`<\n]+?)(?: ?<[^>`]*>)?`_{0,2}|(?<!\w)\*\*?([A-Za-z][\w -]*)\*\*?(?!\w)"
)
_WORD = re.compile(r"[a-z']+")
_SIGN = re.compile(r"[^A-Za-z ,.']")
_CODE = re.compile(r"\w[._/]\w|\w\(|[=<>{}\[\]\\|`*@#$%^~]|--|\d\.\d|[a-z][A-Z]|\b[A-Z]{4,}\b")
_COMMON = re.compile(
    r"\b(?:the|an?|of|to|is|in|and|or|be|this|that|for|if|it|are|with|as|not|by|on|from|at|will|can|was|were|which"
    r"|when|should|must|you)\b"
)
_HEAD = re.compile(r"[.:?!]$|^\s*\*{0,2}[\w, *]+ : ")
_END = re.compile(r"[.?!][)\"']?\s*$")


def books() -> Iterator[tuple[str, str]]:
    """Yield the name and text of each book. No paragraph occurs twice."""
    seen: set[str] = set()
    for name, texts in chain(_topics(), _modules()):
        if sum(map(len, texts)) < BOOK_CHARACTERS:
            continue
        new_paragraphs = [
            prose for text in texts for prose in paragraphs(text) if not (prose in seen or seen.add(prose))
        ]
        book = "\n".join(new_paragraphs)
        if len(book) >= BOOK_CHARACTERS:
            yield name, book


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a docstring that are English sentences, one per line, without markup."""
    block: list[str] = []
    for line in (*text.expandtabs().splitlines(), ""):
        stripped = line.strip()
        if block and (not stripped or _ITEM.match(stripped) or _is_apart(block[-1], line)):
            if prose := _prose(block):
                yield prose
            block = []
        if stripped:
            block.append(line)


def _is_apart(above: str, line: str) -> bool:
    indented = len(above.lstrip()) - len(above) + len(line) - len(line.lstrip())
    return indented < 0 or (indented > 0 and bool(_HEAD.search(above)))


def _prose(block: list[str]) -> str | None:
    # This rejects most blocks: headings, types and code.
    if not _END.search(block[-1], max(0, len(block[-1].rstrip()) - 2)):
        return None
    text = " ".join(" ".join(block).split())
    text = _ITEM.sub("", text, count=1) if _ITEM.match(text) else text
    if "`" in text or "*" in text:
        text = _MARKUP.sub(lambda match: match[1] or match[2], text.replace("``", "`"))
    if not text[0].isupper() or not text.isascii():
        return None
    words = _WORD.findall(text.lower())
    is_prose = (
        len(words) >= 6
        and len(_SIGN.findall(text)) <= 0.05 * len(text)
        and len(_COMMON.findall(text.lower())) >= 0.25 * len(words)
        and len(_CODE.findall(text)) <= 0.04 * len(words)
    )
    return text if is_prose else None


def _topics() -> Iterator[tuple[str, list[str]]]:
    """Yield the interpreter's help topics.

    Some installations, such as Debian's `python3-minimal`, have none.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return
    # Long topics contain short ones.
    for name in sorted(topics, key=lambda name: (len(topics[name]), name)):
        yield f"help-{name}", [re.sub(r'"([^"\s]+)"', r"\1", topics[name])]


def _modules() -> Iterator[tuple[str, list[str]]]:
    for root, prefix in [(Path(sysconfig.get_path("stdlib")), ""), *_packages()]:
        for path in sorted(root.rglob("*.py"), key=lambda path: path.as_posix()):
            parts = path.relative_to(root).with_suffix("").parts
            if _LEFT_OUT.isdisjoint(parts):
                source = path.read_text(encoding="utf-8", errors="replace")
                name = ".".join((*prefix.split(), *parts)).removesuffix(".__init__")
                yield name, list(_docstrings(source))


def _docstrings(source: str) -> Iterator[str]:
    end = 0
    while match := _OPENING.search(source, end):
        close = source.find(match[1], match.end())
        if close >= 0:
            yield source[match.end() : close]
        end = max(close + 3, match.end())


def _packages() -> Iterator[tuple[Path, str]]:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield Path(folder), name


PAGES_PER_STREAM = 4  # 100 in official dumps
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HEADER = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <dbname>enwiki</dbname>
  </siteinfo>
"""


@dataclass(frozen=True)
class DemoPage:
    """A page of a dump: the full title (such as `Talk:Rain`), its wikitext, and the target if it is a redirect."""

    title: str
    text: str
    namespace: int = 0
    redirect: str | None = None


def write_dump(path: Path, pages: Sequence[DemoPage]) -> None:
    """Write `pages` as a multistream bz2 dump, as of the English Wikipedia: a header, a few pages a stream, the end.

    Format: https://www.mediawiki.org/xml/export-0.11.xsd,
        https://meta.wikimedia.org/wiki/Data_dumps/Dump_format
    """
    page_texts = [_page(page, number) for number, page in enumerate(pages, start=1)]
    streams = [
        "".join(page_texts[start : start + PAGES_PER_STREAM])
        for start in range(0, len(page_texts), PAGES_PER_STREAM)
    ]
    path.write_bytes(b"".join(bz2.compress(text.encode()) for text in (_HEADER, *streams, "</mediawiki>\n")))


def _page(page: DemoPage, number: int) -> str:
    redirect = f"    <redirect title={quoteattr(page.redirect)} />\n" if page.redirect else ""
    text = escape(_NOT_IN_XML.sub("\ufffd", page.text))
    return (
        f"  <page>\n    <title>{escape(page.title)}</title>\n    <ns>{page.namespace}</ns>\n"
        f"    <id>{10 + 2 * number}</id>\n{redirect}    <revision>\n      <id>{5000 + 7 * number}</id>\n"
        f'      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    )


CHARACTERS = 3_250_000  # of all books; about as much as the demo trains on in a minute
PAGES = Path(__file__).parent / "pages"
_DUMP = "enwiki-demo-pages-articles-multistream.xml.bz2"
_BOOKS = "docstrings.jsonl"
_MARK = "demo-corpus.json"
_REDIRECT = re.compile(r"#REDIRECT \[\[([^\]|#]+)")


@dataclass(frozen=True)
class DemoCorpus:
    """The files of a demo corpus. `documents` and `characters` count its articles (without redirects) and books."""

    wikipedia: tuple[Path, ...]
    books: tuple[Path, ...]
    documents: int
    characters: int


def write_demo_corpus(folder: Path) -> DemoCorpus:
    """Write the corpus into `folder`, its marker last, unless a complete one is there.

    Raises UserError on failure.
    """
    dump, shelf, mark = folder / _DUMP, folder / "books" / "en" / _BOOKS, folder / _MARK
    try:
        if not mark.exists():
            shelf.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(mark, json.dumps(_write(dump, shelf)) + "\n")
        counts = json.loads(mark.read_text(encoding="utf-8"))
        return DemoCorpus((dump,), (shelf,), counts["documents"], counts["characters"])
    except OSError as error:
        raise UserError(
            f"The demo corpus cannot be written to {folder}: {error.strerror}. Choose another folder."
        ) from error


def bundled_pages() -> list[DemoPage]:
    """Return the articles and redirects of `pages/` by title, then a template and a talk page, as in real dumps."""
    pages = []
    for path in sorted(PAGES.glob("*.wikitext")):
        text = path.read_text(encoding="utf-8").rstrip("\n")
        match = _REDIRECT.match(text)
        pages.append(DemoPage(path.stem, text, redirect=match[1] if match else None))
    template = (
        "<includeonly>This article is about {{{1|}}}.</includeonly><noinclude>{{documentation}}</noinclude>"
    )
    return [
        *pages,
        DemoPage("Template:About", template, namespace=10),
        DemoPage("Talk:Rain", "== Drops ==\nAre they really round? ~~~~", namespace=1),
    ]


def _write(dump: Path, shelf: Path) -> dict[str, int]:
    pages = bundled_pages()
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
