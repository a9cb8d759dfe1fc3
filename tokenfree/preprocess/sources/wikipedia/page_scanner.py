"""Decompressed bytes of a dump to the bytes of its pages: found by their tags, without an XML parser.

MediaWiki escapes every `<` of a text, so that `<page>` and `</page>` can be nothing but tags. Searching for them is
fast, knows no entities to expand and no nesting to overflow, and goes on after a page that is broken.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tokenfree.preprocess.sources.inputs.compression import Block, Damage, End, Event

MAX_PAGE_BYTES = 100_000_000  # of a page with its last revision; MediaWiki itself allows 2 MB
RAW_BYTES = 1_000_000  # kept of a page that is too large
REDUCE_BYTES = 8_000_000  # a page that grows beyond is cut down to its last revision
_OPEN = b"<page"
_PAGE = re.compile(_OPEN + rb"[\s>]")
_TAIL_BYTES = 16  # more than any tag searched for, for those that lie across two blocks


@dataclass(frozen=True)
class RawPage:
    """The bytes from `<page>` to `</page>`."""

    data: bytes


@dataclass(frozen=True)
class Loss:
    """What could not be read: a broken page (`data` is its beginning), or, at `offset` of the stored file, more."""

    reason: str
    data: bytes = b""
    offset: int | None = None


Found: TypeAlias = RawPage | Loss


def as_utf8(events: Iterable[Event], encoding: str) -> Iterator[Event]:
    """The events of a dump in `encoding` with their bytes in UTF-8; what is no text becomes bytes that are no UTF-8."""
    errors = "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    for event in events:
        if isinstance(event, Block):
            text = decoder.decode(event.data)
            yield Block(text.encode("utf-8", "surrogatepass"), event.owned, event.position)
        else:
            decoder.reset()
            yield event


def scan_pages(events: Iterable[Event], rooted: bool) -> Iterator[Found]:
    """The pages that start in owned blocks, whole, and what was lost among them, in the order of the file.

    `rooted` tells that the dump opens with `<mediawiki>`: then one that ends without `</mediawiki>` has lost its end.
    Losses do not depend on how a file was cut into ranges: a damage belongs to the range of its stream, a page to the
    range that it starts in; a page that a damage cuts off is told with the damage. One exception: a last range in which
    no tag of a page stands, too short for a planned one, does not tell that `</mediawiki>` is missing.
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
    """The bytes not yet told, and whether a page is open in them."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.limit: int | None = None  # pages from here on are not ours
        self.finished = False
        self._open = False  # the buffer begins with a page
        self._skipping = False  # the open page was too large and has been told
        self._searched = 0  # no closing tag ends before
        self._reduce_at = REDUCE_BYTES
        self._seen_page = False
        self._seen_root_end = False

    def feed(self, data: bytes) -> Iterator[Found]:
        """The pages that are complete with `data`."""
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
            end, found = closed
            if not self._skipping:
                yield found
            position, self._open, self._skipping = end, False, False
        del self.buffer[:position]
        self._searched = max(0, self._searched - position)
        if self.limit is not None:
            self.limit = max(0, self.limit - position)
        if self._open:
            yield from self._shrink()

    def finish(self, end: End, rooted: bool) -> Iterator[Loss]:
        """What the end of the file cuts off."""
        if self._open:
            if not self._skipping:
                yield Loss("truncated", bytes(self.buffer[:RAW_BYTES]), end.offset)
        elif rooted and self._seen_page and not self._seen_root_end:
            yield Loss("truncated", offset=end.offset)

    def _find_open(self, position: int) -> int:
        """Goes to the next page, or, where there is none yet, to the bytes that a tag may begin in."""
        match = _PAGE.search(self.buffer, position)
        gap_end = match.start() if match else len(self.buffer)
        self._seen_root_end |= self.buffer.find(b"</mediawiki", position, gap_end) >= 0
        self._seen_page |= match is not None or self.buffer.find(b"</page", position, gap_end) >= 0
        if match and not (self.limit is not None and match.start() >= self.limit):
            self._open, self._searched, self._reduce_at = True, match.end(), REDUCE_BYTES
            return match.start()
        if self.limit is not None:
            # Only a tag that begins before the limit and may go on after it is worth reading on for.
            tail = bytes(self.buffer[max(position, self.limit - len(_OPEN)) : self.limit])
            begun = tail[tail.rfind(b"<") :] if b"<" in tail else b""
            awaited = begun and _OPEN.startswith(begun) and len(self.buffer) < self.limit + _TAIL_BYTES
            self.finished = match is not None or not awaited
        return max(position, len(self.buffer) - _TAIL_BYTES)

    def _find_close(self, position: int) -> tuple[int, Found] | None:
        """Where the page at `position` ends, and what it is; a further `<page>` ends it too, as a broken one."""
        start = max(position + len(_OPEN) + 1, self._searched - _TAIL_BYTES)
        # The next page first: looking for the end of each of many unclosed pages first would take quadratic time.
        nested = _PAGE.search(self.buffer, start)
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
        return end, RawPage(bytes(self.buffer[position:end]))

    def _shrink(self) -> Iterator[Loss]:
        """Keeps the memory bounded while a page goes on and on."""
        if self._skipping:
            self.finished = self.limit is not None
            self._drop(0, max(0, len(self.buffer) - _TAIL_BYTES))
            return
        if len(self.buffer) < self._reduce_at:
            return
        first, last = self.buffer.find(b"<revision"), self.buffer.rfind(b"<revision")
        if first >= 0:
            self._drop(first, last)
        if len(self.buffer) > MAX_PAGE_BYTES:
            yield Loss("too_large", bytes(self.buffer[:RAW_BYTES]))
            self._skipping = True
        self._reduce_at = min(max(REDUCE_BYTES, 2 * len(self.buffer)), MAX_PAGE_BYTES + 1)

    def _drop(self, start: int, end: int) -> None:
        del self.buffer[start:end]
        self._searched = max(0, self._searched - (end - start))
        if self.limit is not None:
            self.limit -= min(self.limit, end) - min(self.limit, start)
