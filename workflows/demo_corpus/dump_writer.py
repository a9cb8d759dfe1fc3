"""Writes MediaWiki XML exports (schema 0.11) in the shape of the official dumps: plain, bz2, or multistream bz2.

A multistream file is one bz2 stream with the header, one stream for every 100 pages and one with the footer; its index
`...-index.txt.bz2` has a line `offset:page id:title` for each page. The same pages always give the same bytes: ids,
revisions, authors and times follow from the place of a page in the dump.
Format: https://www.mediawiki.org/xml/export-0.11.xsd, https://meta.wikimedia.org/wiki/Data_dumps/Dump_format
"""

from __future__ import annotations

import bz2
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import IO
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from tokenfree.preprocess.common.errors import UserError

PAGES_PER_STREAM = 100
FIRST_EDIT = datetime(2024, 1, 1, tzinfo=timezone.utc)
AUTHORS = (
    "<username>Demo author</username>\n        <id>2</id>",
    "<username>Copy editor</username>\n        <id>3</id>",
    "<ip>192.0.2.17</ip>",  # of the block that RFC 5737 keeps for documentation
)
SCHEMA = "http://www.mediawiki.org/xml/export-0.11/"
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class DumpSite:
    """What the head of a dump says of its wiki; `namespaces` maps a namespace number to its local name."""

    language: str
    name: str
    main_page: str
    namespaces: Mapping[int, str]

    @property
    def database(self) -> str:
        """The name of the wiki's database, such as `swwiki`."""
        return f"{self.language}wiki"


@dataclass(frozen=True)
class DemoPage:
    """One page as it stands in a dump: the full title (`Talk:Rain`), its wikitext, and where it redirects to."""

    title: str
    text: str
    namespace: int = 0
    redirect: str | None = None


def write_dump(path: Path, pages: Iterable[DemoPage], site: DumpSite, *, multistream: bool = True) -> int:
    """Write `pages` as a dump and return how many they were; nothing stands at `path` until it is whole.

    The ending decides: `.xml` is written plain, `.xml.bz2` in many bz2 streams with an index beside it (see
    `index_path`), or in a single stream without an index where `multistream` is false.

    Raises:
        UserError: the file name ends in neither `.xml` nor `.xml.bz2`.
    """
    if not path.name.endswith((".xml", ".xml.bz2")):
        raise UserError(f"{path}: a dump is named *.xml or *.xml.bz2; choose such a name")
    if path.suffix == ".xml" or not multistream:
        return _write_single(path, pages, site)
    return _write_multistream(path, pages, site)


def index_path(path: Path) -> Path:
    """The name of the index that belongs to a multistream dump: `x-multistream-index.txt.bz2` for `x-multistream`."""
    return path.with_name(path.name.removesuffix(".xml.bz2") + "-index.txt.bz2")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file open for writing that takes the place of `path` when the block ends, and vanishes if it fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_single(path: Path, pages: Iterable[DemoPage], site: DumpSite) -> int:
    number = 0
    compressor = bz2.BZ2Compressor() if path.suffix == ".bz2" else None
    with replacing(path) as file:

        def put(xml: str) -> None:
            file.write(compressor.compress(xml.encode()) if compressor else xml.encode())

        put(_header(site))
        for number, page in enumerate(pages, start=1):
            put(_page(page, number))
        put(_FOOTER)
        if compressor:
            file.write(compressor.flush())
    return number


def _write_multistream(path: Path, pages: Iterable[DemoPage], site: DumpSite) -> int:
    numbered = enumerate(pages, start=1)
    index, count = [], 0
    with replacing(path) as file:
        file.write(bz2.compress(_header(site).encode()))
        while stream := list(islice(numbered, PAGES_PER_STREAM)):
            # The official index, too, holds titles as they stand in the XML.
            index += [f"{file.tell()}:{_page_id(number)}:{escape(page.title)}\n" for number, page in stream]
            file.write(bz2.compress("".join(_page(page, number) for number, page in stream).encode()))
            count += len(stream)
        file.write(bz2.compress(_FOOTER.encode()))
    with replacing(index_path(path)) as file:
        file.write(bz2.compress("".join(index).encode()))
    return count


def _header(site: DumpSite) -> str:
    namespaces = "".join(
        f'      <namespace key="{key}" case="first-letter">{escape(name)}</namespace>\n'
        if name
        else f'      <namespace key="{key}" case="first-letter" />\n'
        for key, name in sorted(site.namespaces.items())
    )
    base = f"https://{site.language}.wikipedia.org/wiki/{quote(site.main_page.replace(' ', '_'))}"
    return (
        f'<mediawiki xmlns="{SCHEMA}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        f' xsi:schemaLocation="{SCHEMA} {SCHEMA[:-1]}.xsd" version="0.11" xml:lang="{site.language}">\n'
        f"  <siteinfo>\n    <sitename>{escape(site.name)}</sitename>\n    <dbname>{site.database}</dbname>\n"
        f"    <base>{base}</base>\n    <generator>MediaWiki 1.46.0-wmf.7</generator>\n    <case>first-letter</case>\n"
        f"    <namespaces>\n{namespaces}    </namespaces>\n  </siteinfo>\n"
    )


_FOOTER = "</mediawiki>\n"


def _page_id(number: int) -> int:
    return 10 + 2 * number  # ids in real dumps start late and have gaps


def _page(page: DemoPage, number: int) -> str:
    # The empty page of a dump is written as `<text bytes="0" />`; the demo has none.
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


_QUOTE = {'"': "&quot;"}  # MediaWiki writes quotation marks in text as entities


def _base36(digest: bytes) -> str:
    """A SHA-1 as MediaWiki writes it: 31 digits to the base 36."""
    value, digits = int.from_bytes(digest, "big"), ""
    for _ in range(31):
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits
