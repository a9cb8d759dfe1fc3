"""Write MediaWiki XML exports (schema 0.11) in the format of the official multistream bz2 dumps.

A file consists of one bz2 stream with the header, one for every few pages, and one with the footer. Its index
`...-index.txt.bz2` has a line `offset:page id:title` for each page. The same pages always give the same bytes: ids,
revisions, authors and times follow from the position of a page in the dump.
Format: https://www.mediawiki.org/xml/export-0.11.xsd, https://meta.wikimedia.org/wiki/Data_dumps/Dump_format
"""

from __future__ import annotations

import bz2
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

PAGES_PER_STREAM = 4  # 100 in official dumps
FIRST_EDIT = datetime(2024, 1, 1, tzinfo=UTC)
AUTHORS = (
    "<username>Demo author</username>\n        <id>2</id>",
    "<username>Copy editor</username>\n        <id>3</id>",
    "<ip>192.0.2.17</ip>",  # from the block that RFC 5737 reserves for documentation
)
SCHEMA = "http://www.mediawiki.org/xml/export-0.11/"
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class DemoPage:
    """A page of a dump: the full title (such as `Talk:Rain`), its wikitext, and the target if it is a redirect."""

    title: str
    text: str
    namespace: int = 0
    redirect: str | None = None


def write_dump(path: Path, pages: Iterable[DemoPage]) -> None:
    """Write `pages` as a multistream bz2 dump of the English Wikipedia, with its index next to it."""
    numbered = enumerate(pages, start=1)
    index: list[str] = []
    with path.open("wb") as file:
        file.write(bz2.compress(_HEADER.encode()))
        while stream := list(islice(numbered, PAGES_PER_STREAM)):
            # The official index also has titles escaped as in the XML.
            index += [f"{file.tell()}:{_page_id(number)}:{escape(page.title)}\n" for number, page in stream]
            file.write(bz2.compress("".join(_page(page, number) for number, page in stream).encode()))
        file.write(bz2.compress(_FOOTER.encode()))
    index_path(path).write_bytes(bz2.compress("".join(index).encode()))


def index_path(path: Path) -> Path:
    """Return the path of the index of a multistream dump: `x-multistream-index.txt.bz2` for `x-multistream.xml.bz2`."""
    return path.with_name(path.name.removesuffix(".xml.bz2") + "-index.txt.bz2")


_NAMES = (
    *("Media", "Special", "", "Talk", "User", "User talk", "Wikipedia", "Wikipedia talk", "File", "File talk"),
    *("MediaWiki", "MediaWiki talk", "Template", "Template talk", "Help", "Help talk", "Category", "Category talk"),
)
NAMESPACES = {**dict(enumerate(_NAMES, start=-2)), 828: "Module", 829: "Module talk"}
_SPACES = "".join(
    f'      <namespace key="{key}" case="first-letter"' + (f">{name}</namespace>\n" if name else " />\n")
    for key, name in NAMESPACES.items()
)
_HEADER = f"""\
<mediawiki xmlns="{SCHEMA}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="{SCHEMA} {SCHEMA[:-1]}.xsd" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.46.0-wmf.7</generator>
    <case>first-letter</case>
    <namespaces>
{_SPACES}    </namespaces>
  </siteinfo>
"""
_FOOTER = "</mediawiki>\n"


def _page_id(number: int) -> int:
    return 10 + 2 * number  # ids in real dumps start late and have gaps


def _page(page: DemoPage, number: int) -> str:
    # A real dump writes an empty page as `<text bytes="0" />`. The demo has none.
    text = _NOT_IN_XML.sub("\ufffd", page.text)
    revision = 5000 + 7 * number
    time = (FIRST_EDIT + timedelta(minutes=17 * number)).strftime("%Y-%m-%dT%H:%M:%SZ")
    sha1 = _base36(hashlib.sha1(text.encode()).digest())
    redirect = f"    <redirect title={quoteattr(page.redirect)} />\n" if page.redirect else ""
    minor = "      <minor />\n" if number % 5 == 0 else ""
    return (
        f"  <page>\n    <title>{escape(page.title)}</title>\n    <ns>{page.namespace}</ns>\n"
        f"    <id>{_page_id(number)}</id>\n{redirect}"
        f"    <revision>\n      <id>{revision}</id>\n      <parentid>{revision - 3}</parentid>\n"
        f"      <timestamp>{time}</timestamp>\n"
        f"      <contributor>\n        {AUTHORS[number % len(AUTHORS)]}\n      </contributor>\n{minor}"
        f"      <comment>/* {escape(page.title)} */ wording</comment>\n      <origin>{revision}</origin>\n"
        f"      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text bytes="{len(text.encode())}" sha1="{sha1}" xml:space="preserve">{escape(text, _QUOTE)}</text>\n'
        f"      <sha1>{sha1}</sha1>\n    </revision>\n  </page>\n"
    )


_QUOTE = {'"': "&quot;"}  # MediaWiki escapes quotation marks in text


def _base36(digest: bytes) -> str:
    """Return a SHA-1 digest as MediaWiki writes it, in 31 base-36 digits."""
    value, digits = int.from_bytes(digest, "big"), ""
    for _ in range(31):
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits
