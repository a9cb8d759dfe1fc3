"""MediaWiki's own parser tests: the cleaner gives the words of their HTML.

Left out of the HTML is what the cleaner leaves out: tables, files, references, formulas, headings without text
below them, and numbers of bare links.
"""

import re
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext.cleaner import clean

# Reached: 723 of 753 tests without templates (96.0%) and 297 of 393 with templates (75.6%).
MIN_EQUAL = {"plain": 723, "templates": 297}
LEFT_OUT_TAGS = {
    *("table", "figure", "img", "math", "style", "script", "audio", "video", "gallery", "title"),
}
LEFT_OUT_CLASSES = (
    "mw-editsection",
    "reference",
    "mw-ref",
    "gallery",
    "thumb",
    "mw-empty-elt",
    "mw-broken-media",
)
VOID = {"br", "img", "hr", "wbr", "link", "meta", "input"}
HEADING = re.compile(r"h[1-6]")
OPTIONS = re.compile(r"(?m)^\s*(pst|msg|comment|disabled|showtitle|section=|replace=|preload)|variant", re.I)
SPECIAL_TAGS = re.compile(r"<(langconvert|tag|spantag|divtag|pwraptest|indicator|aside|embed|magic)\b", re.I)


class Reader(HTMLParser):
    """Collects text, and the names of headings where they begin (`h2`) and end (`/h2`), as pairs of kind and text."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[tuple[str, str]] = []
        self.open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        classes, kind = values.get("class", ""), values.get("typeof", "")
        left_out = (
            tag in LEFT_OUT_TAGS
            or any(name in classes for name in LEFT_OUT_CLASSES)
            or "toc" in classes.split()
            or kind.startswith(("mw:File", "mw:Error"))
            or "display:none" in values.get("style", "").replace(" ", "")
            or (tag == "a" and ("autonumber" in classes or "wpDestFile" in values.get("href", "")))
        )
        self.pieces.append(("heading" if HEADING.fullmatch(tag) else "space", tag))
        if tag not in VOID:
            self.open.append((tag, left_out))

    def handle_endtag(self, tag: str) -> None:
        numbers = [number for number, (name, _) in enumerate(self.open) if name == tag]
        if numbers:
            del self.open[numbers[-1] :]
        self.pieces.append(("end" if HEADING.fullmatch(tag) else "space", tag))

    def handle_data(self, data: str) -> None:
        if not any(left_out for _, left_out in self.open):
            self.pieces.append(("text", data))


BREAKING = {"br", "p", "li", "div", "dd", "dt", "tr", "td"}


def visible(pieces: list[tuple[str, str]]) -> str:
    """Return the text without headings that no text follows before the next one of their level or above."""
    shown: list[str] = []
    waiting: list[tuple[str, list[str]]] = []
    inside = False
    for kind, text in pieces:
        if kind == "heading":
            while waiting and waiting[-1][0] >= text:
                waiting.pop()
            waiting.append((text, []))
            inside = True
        elif kind == "end":
            inside = False
        else:
            piece = text if kind == "text" else "\n" if text in BREAKING else ""
            if inside:
                waiting[-1][1].append(piece)
                continue
            if piece.strip():
                shown += [f"\n{''.join(heading)}\n" for _, heading in waiting]
                waiting = []
            shown.append(piece)
    return "".join(shown)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text))


def read_sections(path: Path) -> Iterator[dict[str, str]]:
    """Yield the articles and tests of a file, by the names of their sections."""
    record: dict[str, str] = {}
    section = ""
    for line in path.read_text("utf-8", errors="replace").split("\n"):
        mark = re.match(r"!!\s*(\S+)", line)
        if mark is None:
            if section:
                record[section] += line + "\n"
            continue
        section = mark[1].lower()
        if section in ("article", "test"):
            record = {section: ""}
        elif section.startswith("end"):
            yield record
            record, section = {}, ""
        else:
            record.setdefault(section, "")


def runnable(record: dict[str, str]) -> tuple[str, str] | None:
    """Return the wikitext and HTML of a test, or None if it needs what a dump does not have."""
    source = record.get("wikitext") or record.get("input")
    names = ("html", "html/php", "html/*", "html+tidy", "result", "html/parsoid+integrated")
    html = next((record[name] for name in names if record.get(name)), None)
    if source is None or html is None or OPTIONS.search(record.get("options", "")):
        return None
    return None if SPECIAL_TAGS.search(source) or "wgRawHtml" in record.get("config", "") else (source, html)


def test_clean_gives_the_words_of_mediawikis_tests(test_data):
    folder = test_data / "mediawiki-parser-tests"
    if not folder.is_dir():
        pytest.skip(f"no parser tests in {folder}")
    equal = {"plain": 0, "templates": 0}
    for path in sorted(folder.glob("*.txt")):
        records = list(read_sections(path))
        articles = {
            r["article"].strip(): r["text"].rstrip("\n") for r in records if "article" in r and "text" in r
        }
        for record in records:
            if "test" not in record or (pair := runnable(record)) is None:
                continue
            reader = Reader()
            reader.feed(pair[1])
            reader.close()
            options = record.get("options", "")
            language = (re.search(r"language=([a-z-]+)", options) or ["", "en"])[1]
            title = (re.search(r"(?m)title=(?:\[\[)?\"?([^\]\"\n]+)", options) or ["", "Parser test"])[
                1
            ].strip()
            site = Site.from_siteinfo("", database=f"{language}wiki", language=language)
            text = clean(pair[0], site, title=title, templates=articles)
            equal["templates" if "{{" in pair[0] else "plain"] += words(text) == words(visible(reader.pieces))
    assert all(equal[kind] >= least for kind, least in MIN_EQUAL.items()), equal
