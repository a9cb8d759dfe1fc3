"""Wikipedia dumps: the head of a dump, its parts, and the pages of each part.

MediaWiki escapes every `<` of a text, so `<page>` and `</page>` are always tags. Searching for them is fast,
has no entities to expand and no nesting to overflow, and continues after a broken page.
"""

import codecs
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from tokenfree.core.errors import UserError
from tokenfree.preprocess.records import UNKNOWN_DATABASE, Failure, InputSplit, Page, Site
from tokenfree.preprocess.sources.compression import (
    BZ2_HEADER,
    HEADER_BYTES,
    Block,
    Damage,
    End,
    Event,
    Source,
    read_blocks,
    stored_format,
)
from tokenfree.preprocess.sources.files import WIKIMEDIA_LANGUAGES, InputFile, open_input, wikimedia_database
from tokenfree.preprocess.wikitext.markup import folded, wiki_words

HEAD_BYTES = 1_000_000  # decompressed, of each dump, to measure its compression ratio
MAX_HEAD_BYTES = 16_000_000  # a dump has its first page within these
PROBE_BYTES = 64_000_000  # a bz2 file without a second stream within these counts as one stream
_BYTE_ORDER_MARKS = {
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_PAGE = re.compile(r"<page[\s>]")
_ROOT = re.compile(r"<mediawiki\b(?:[^<>]*?\bversion=\"(\d{1,4})\.(\d{1,4})\")?")


def is_dump_name(name: str) -> bool:
    """Return True if a file in a folder is read as a dump: `.xml` in its name, and no index, checksum or stub."""
    return (
        ".xml" in name
        and "-index" not in name
        and "-stub" not in name
        and not name.endswith(("sum", ".txt", ".rss"))
    )


def split_dump(file: InputFile, language: str | None, split_bytes: int) -> list[InputSplit]:
    """Return the parts of a dump, of about `split_bytes` decompressed bytes each.

    Raises UserError if it is none.
    """
    whole, ratio = _read_head(file, language)
    return [
        replace(whole, start=start, end=end, size=max(1, round((end - start) * ratio)))
        for start, end in pairwise([0, *_cuts(file, whole, split_bytes / ratio), file.size])
    ]


def _read_head(file: InputFile, language: str | None) -> tuple[InputSplit, float]:
    """Return a dump as one split, and its decompressed bytes per stored byte.

    Reads little more than its first page.
    """
    with open_input(file.path) as opened:
        stored = stored_format(opened.read(HEADER_BYTES))
    start, consumed = b"", 0
    for event in read_blocks(file.path, stored, 0, file.size):
        if isinstance(event, Block):
            start, consumed = start + event.data, event.position
        if len(start) >= HEAD_BYTES and (
            len(start) >= MAX_HEAD_BYTES or b"<page" in start.replace(b"\0", b"")
        ):
            break
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), "utf-8")
    text = start.decode(encoding, errors="replace")
    page = _PAGE.search(text)
    if not page:
        raise UserError(
            f"wikipedia: no page of a MediaWiki XML dump can be read from {file.path}. Unpack archives, download a "
            "damaged file again, or give a file such as enwiki-latest-pages-articles.xml.bz2"
        )
    xml = text[: page.start()]
    root = _ROOT.search(xml)
    version = (int(root.group(1)), int(root.group(2))) if root and root.group(1) else None
    site = _site(file.name, xml, language)
    split = InputSplit(
        kind="wikipedia",
        format=stored,
        inputs=(file.path,),
        names=(file.name,),
        versions=(file.version,),
        languages=(site.language,),
        end=file.size,
        site=site,
        encoding=encoding,
        rooted=root is not None,
        needs_ns=version is not None and version >= (0, 6),
    )
    return split, len(start) / max(1, consumed)


def _site(file_name: str, xml: str, language: str | None) -> Site:
    """Return the wiki of a dump.

    The file's name wins: in excerpts and converted dumps the head often names another.
    """
    base = file_name.rpartition("/")[2]
    database, file_language = wikimedia_database(base) or (None, None)
    site = Site.from_siteinfo(xml, database=database, language=language or file_language)
    if not (language or file_language):
        site = replace(site, language=WIKIMEDIA_LANGUAGES.get(site.language.lower(), site.language))
    if site.database == UNKNOWN_DATABASE:
        site = replace(site, database=re.sub(r"[^\w-]+", "_", base.partition(".")[0]) or UNKNOWN_DATABASE)
    return site


def _cuts(file: InputFile, head: InputSplit, stored_bytes: float) -> list[int]:
    """Return where the parts after the first begin.

    Any position works: readers find pages and streams themselves.
    """
    num_parts = math.ceil(file.size / max(1, round(stored_bytes)))
    if num_parts < 2 or head.encoding != "utf-8" or head.format not in ("xml", "bz2"):
        return []
    if head.format == "bz2":
        with open_input(file.path) as opened:
            if not Source(opened, 1).seek_header(BZ2_HEADER, PROBE_BYTES):
                return []
    return [file.size * part // num_parts for part in range(1, num_parts)]


MAX_PAGE_BYTES = 100_000_000  # for a page with its last revision; MediaWiki itself allows 2 MB
RAW_BYTES = 1_000_000  # kept of a page that is too large
REDUCE_BYTES = 8_000_000  # a page that grows larger is cut to its newest and its open revision
_OPEN = b"<page"
_PAGE_TAG = re.compile(_OPEN + rb"[\s>]")
# More than any tag searched for, to find tags that span two blocks.
_TAIL_BYTES = 16


@dataclass(frozen=True)
class Loss:
    """Lost content: a broken page (`data` is its beginning), or bytes at `offset` of the stored file."""

    reason: str
    data: bytes = b""
    offset: int | None = None


ScannedPage: TypeAlias = bytes | Loss  # the bytes from `<page>` to `</page>`


def as_utf8(events: Iterable[Event], encoding: str) -> Iterator[Event]:
    """Yield the events of a dump in `encoding` with their bytes in UTF-8.

    Undecodable bytes become invalid UTF-8.
    """
    errors = "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    for event in events:
        if isinstance(event, Block):
            text = decoder.decode(event.data)
            yield Block(text.encode("utf-8", "surrogatepass"), event.owned, event.position)
        else:
            decoder.reset()
            yield event


def scan_pages(events: Iterable[Event], rooted: bool) -> Iterator[ScannedPage]:
    """Yield the whole pages that start in owned blocks, and the losses among them, in the order of the file.

    A `rooted` dump opens with `<mediawiki>`; if it ends without `</mediawiki>`, its end is lost. Losses do
    not depend on how a file was cut into ranges: damage belongs to the range of its stream, and a page to the
    range that it starts in. One exception: a last range without any tag of a page does not report a missing
    `</mediawiki>`.
    """
    scanner = _Scanner()
    for event in events:
        if isinstance(event, Block):
            if not event.owned and scanner.limit is None:
                scanner.limit = len(scanner.buffer)
            yield from scanner.feed(event.data)
            if scanner.finished:
                return
        elif isinstance(event, Damage):
            if not event.owned:
                return
            scanner = _Scanner()
            yield Loss(event.reason, offset=event.offset)
        else:
            yield from scanner.finish(event, rooted)


class _Scanner:
    def __init__(self) -> None:
        self.buffer = bytearray()
        # Pages from here on belong to the next range.
        self.limit: int | None = None
        self.finished = False
        # The buffer begins with a page.
        self._open = False
        # The open page was too large and was reported.
        self._skipping = False
        # No closing tag ends before this position.
        self._searched = 0
        self._reduce_at = REDUCE_BYTES
        self._seen_page = False
        self._seen_root_end = False

    def feed(self, data: bytes) -> Iterator[ScannedPage]:
        self.buffer += data
        position = 0
        while True:
            if not self._open:
                position = self._find_open(position)
                if not self._open:
                    break
            closed = self._find_close(position)
            if closed is None:
                break
            end, item = closed
            if not self._skipping:
                yield item
            position, self._open, self._skipping = end, False, False
        del self.buffer[:position]
        self._searched = max(0, self._searched - position)
        if self.limit is not None:
            self.limit = max(0, self.limit - position)
        if self._open:
            yield from self._shrink()

    def finish(self, end: End, rooted: bool) -> Iterator[Loss]:
        if self._open:
            if not self._skipping:
                yield Loss("truncated", bytes(self.buffer[:RAW_BYTES]), end.offset)
        elif rooted and self._seen_page and not self._seen_root_end:
            yield Loss("truncated", offset=end.offset)

    def _find_open(self, position: int) -> int:
        """Move to the next page, or if there is none yet, to the bytes that may begin a tag."""
        match = _PAGE_TAG.search(self.buffer, position)
        gap_end = match.start() if match else len(self.buffer)
        self._seen_root_end |= self.buffer.find(b"</mediawiki", position, gap_end) >= 0
        self._seen_page |= match is not None or self.buffer.find(b"</page", position, gap_end) >= 0
        if match and not (self.limit is not None and match.start() >= self.limit):
            self._open, self._searched, self._reduce_at = True, match.end(), REDUCE_BYTES
            return match.start()
        if self.limit is not None:
            # Read on only for a tag that begins before the limit and may end after it.
            tail = bytes(self.buffer[max(position, self.limit - len(_OPEN)) : self.limit])
            partial_tag = tail[tail.rfind(b"<") :] if b"<" in tail else b""
            awaited = (
                partial_tag and _OPEN.startswith(partial_tag) and len(self.buffer) < self.limit + _TAIL_BYTES
            )
            self.finished = match is not None or not awaited
        return max(position, len(self.buffer) - _TAIL_BYTES)

    def _find_close(self, position: int) -> tuple[int, ScannedPage] | None:
        """Return where the page at `position` ends, and what it is.

        Another `<page>` also ends it, as a broken page.
        """
        start = max(position + len(_OPEN) + 1, self._searched - _TAIL_BYTES)
        # Search the next page first: searching the end of each of many unclosed pages first would take
        # quadratic time.
        nested = _PAGE_TAG.search(self.buffer, start)
        close = self.buffer.find(b"</page>", start, nested.start() if nested else len(self.buffer))
        if nested and close < 0:
            broken = bytes(self.buffer[position : min(nested.start(), position + RAW_BYTES)])
            return nested.start(), Loss("truncated", broken)
        if close < 0:
            self._searched = len(self.buffer)
            return None
        end = close + len(b"</page>")
        if end - position > MAX_PAGE_BYTES:
            return end, Loss("too_large", bytes(self.buffer[position : position + RAW_BYTES]))
        return end, bytes(self.buffer[position:end])

    def _shrink(self) -> Iterator[Loss]:
        """Bound the memory of a page that does not end."""
        if self._skipping:
            self.finished = self.limit is not None
            self._drop(0, max(0, len(self.buffer) - _TAIL_BYTES))
            return
        if len(self.buffer) < self._reduce_at:
            return
        first, last = self.buffer.find(b"<revision"), self.buffer.rfind(b"<revision")
        if 0 <= first < last:
            # Histories can have the newest revision first, so drop all but it and the open one.
            start, end = _newest_revision(self.buffer)
            if end <= last:
                self._drop(end, last)
            self._drop(first, start)
        if len(self.buffer) > MAX_PAGE_BYTES:
            yield Loss("too_large", bytes(self.buffer[:RAW_BYTES]))
            self._skipping = True
        self._reduce_at = min(max(REDUCE_BYTES, 2 * len(self.buffer)), MAX_PAGE_BYTES + 1)

    def _drop(self, start: int, end: int) -> None:
        del self.buffer[start:end]
        self._searched = max(0, self._searched - (end - start))
        if self.limit is not None:
            self.limit -= min(self.limit, end) - min(self.limit, start)


_REVISION = re.compile(rb"<revision[\s>]")
_TIMESTAMP = re.compile(rb"<timestamp>([^<]*)")


def _newest_revision(page: bytes | bytearray) -> tuple[int, int]:
    """Return where the revision with the latest timestamp begins and ends; of several, the last one."""
    starts = [match.start() for match in _REVISION.finditer(page)]

    def time(span: tuple[int, int]) -> tuple[bytes, int]:
        stamp = _TIMESTAMP.search(page, *span)
        return (bytes(stamp[1]) if stamp else b""), span[0]

    return max(pairwise([*starts, len(page)]), key=time)


_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)</title>")
_NAMESPACE = re.compile(r"<ns>\s*(-?\d{1,9})\s*</ns>")
_ID = re.compile(r"<id>\s*(\d{1,20})\s*</id>")
_TEXT = re.compile(r"<text(?:\s[^<>]*)?/?>")
_MODEL = re.compile(r"<model>([^<]*)</model>")
_CDATA = "<![CDATA["
_ENTITY = re.compile(r"&(lt|gt|quot|apos|amp|#x0*[0-9a-fA-F]{1,8}|#0*[0-9]{1,8});")
_NAMED = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "amp": "&"}
_REDIRECT = re.compile(r"\s*[#＃]\s*(?:redirect\b|([^\n\[\]{}|:]{1,40}?)\s*:?\s*\[\[)", re.IGNORECASE)


def read_pages(split: InputSplit) -> Iterator[Page | Failure]:
    """Yield the pages that start in the split, in the order of the file, and damage and broken pages as failures."""
    site = split.site
    assert site is not None
    for item in _scanned(split):
        if isinstance(item, Loss):
            raw = item.data.decode(errors="replace")
            name = _page_id(raw, site) if item.offset is None else f"{site.database}:bytes {item.offset}"
            yield Failure(name, item.reason, raw)
        else:
            yield parse_page(item, site, needs_ns=split.needs_ns)


def _scanned(split: InputSplit) -> Iterator[ScannedPage]:
    events = read_blocks(split.inputs[0], split.format, split.start, split.end)
    if split.encoding != "utf-8":
        events = as_utf8(events, split.encoding)
    return scan_pages(events, split.rooted)


TEMPLATE = 10
_OTHER_NAMESPACE = re.compile(rb"<ns>\s*(?!10\s*<)-?\d")


def read_templates(split: InputSplit) -> Iterator[Page]:
    """Yield the templates that start in the split, in the order of the file. Broken pages are left out."""
    site = split.site
    assert site is not None
    for item in _scanned(split):
        # Most pages are articles, which need not be parsed to know it.
        if isinstance(item, Loss) or _OTHER_NAMESPACE.search(item, 0, 2000):
            continue
        page = parse_page(item, site, needs_ns=split.needs_ns)
        if isinstance(page, Page) and page.namespace == TEMPLATE and page.model == "wikitext":
            yield page


def parse_page(data: bytes, site: Site, *, needs_ns: bool = True) -> Page | Failure:
    """Return the newest revision of one `<page>` element in UTF-8, or the failure.

    Reasons are bad_encoding, missing_title, missing_ns (only if `needs_ns`, because older dumps have no
    <ns>), missing_id and missing_text.
    """
    if data.count(b"<revision") > 1:
        start, end = _newest_revision(data)
        data = data[: data.find(b"<revision")] + data[start:end]
    try:
        xml = data.decode()
    except UnicodeDecodeError:
        xml = data.decode(errors="replace")
        return Failure(_page_id(xml, site), "bad_encoding", xml)
    revision = xml.rfind("<revision")
    head = xml[: xml.find("<revision")] if revision >= 0 else xml
    title_match, namespace, page_id = _TITLE.search(head), _NAMESPACE.search(head), _ID.search(head)
    opening = _TEXT.search(xml, revision) if revision >= 0 else None
    closing = xml.find("</text>", opening.end()) if opening else -1
    empty = opening is not None and opening.group().endswith("/>")
    reasons = {
        "missing_title": title_match is None,
        "missing_ns": namespace is None and needs_ns,
        "missing_id": page_id is None,
        "missing_text": not empty and closing < 0,
    }
    reason = next((name for name, holds in reasons.items() if holds), None)
    if reason or not (title_match and page_id and opening):
        return Failure(_page_id(xml, site), reason or "missing_text", xml)
    title = unescape(title_match.group(1)).strip()
    text = "" if empty else unescape(xml[opening.end() : closing])
    # The content model stands before the text in current dumps, and after it in those of 2012 to 2013.
    model = _MODEL.search(xml, revision, opening.start()) or _MODEL.search(xml, max(closing, opening.end()))
    return Page(
        id=_page_id(xml, site),
        language=site.language,
        title=title,
        text=text,
        namespace=int(namespace.group(1)) if namespace else site.namespace_of(title),
        redirect="<redirect" in head or _is_redirect(text),
        model=model.group(1).strip() if model else "wikitext",
        site=site,
        kind="wikitext",
    )


def _is_redirect(text: str) -> bool:
    match = _REDIRECT.match(text)
    return match is not None and (match[1] is None or folded(match[1].strip()) in wiki_words("redirect"))


def unescape(raw: str) -> str:
    """Return the character data of XML: resolve line ends, the five entities and numbers, but no other entities.

    Numbers of non-characters (surrogates, NUL, beyond Unicode) become U+FFFD.
    """
    if "\r" in raw:
        raw = raw.replace("\r\n", "\n").replace("\r", "\n")
    if _CDATA in raw:
        head, *sections = raw.split(_CDATA)
        return unescape(head) + "".join(map(_unescape_section, sections))
    pieces = _ENTITY.split(raw)
    pieces[1::2] = [_NAMED.get(name) or _character(name) for name in pieces[1::2]]
    return "".join(pieces)


def _unescape_section(section: str) -> str:
    inside, closed, outside = section.partition("]]>")
    return inside + unescape(outside) if closed else _CDATA + unescape(section)


def _character(name: str) -> str:
    # `int` refuses thousands of digits, even if they are zeros.
    number = int(name.lstrip("#x0") or "0", 16 if name.startswith("#x") else 10)
    invalid = number == 0 or 0xD800 <= number <= 0xDFFF or number > 0x10FFFF
    return "\ufffd" if invalid else chr(number)


def _page_id(xml: str, site: Site) -> str:
    """Return `database:page:revision`, with `?` for what a broken page lacks."""
    revision = xml.rfind("<revision")
    page_id = _ID.search(xml, 0, xml.find("<revision") if revision >= 0 else len(xml))
    revision_id = _ID.search(xml, revision) if revision >= 0 else None
    return ":".join([site.database, *(match.group(1) if match else "?" for match in (page_id, revision_id))])
