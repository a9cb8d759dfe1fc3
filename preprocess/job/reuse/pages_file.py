"""Which page of a dump gave which text, in a file beside a sorted run: by the hash of the page, the key of the text."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping

import pyarrow as pa

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.arrow_tables import write_table
from tokenfree.preprocess.config import FilterConfig
from tokenfree.preprocess.documents.extract import document_of
from tokenfree.preprocess.records.document import KEY_BYTES, Document, Failure, document_key
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.records.wiki_site import Site

DIGEST = pa.binary(16)
Find = Callable[[bytes], str | None]


class PageMemory:
    """Makes documents of pages like `document_of`, takes the texts of known pages from an earlier job, and remembers
    what it saw. A text follows from the page and its site alone, so an equal page has an equal text."""

    def __init__(self, find: Find | None = None) -> None:
        self.seen: dict[bytes, bytes] = {}
        self._find = find

    def document_of(self, page: Page, filters: FilterConfig) -> Document | Failure | str:
        """See `document_of` of `extract`; `filters` are those of the earlier job."""
        if page.kind != "wikitext" or page.model != "wikitext":
            return document_of(page, filters)
        digest = page_digest(page)
        text = self._find(digest) if self._find is not None else None
        made = document_of(page, filters) if text is None else Document(page.id, page.language, page.title, text)
        if isinstance(made, Document):
            self.seen[digest] = document_key(made.text)
        return made


def page_digest(page: Page) -> bytes:
    """The hash of all that the text of a page of a wiki depends on: its site, its language and its wikitext."""
    assert page.site is not None, f"a page of wikitext without its site: {page.id}"
    digest = hashlib.blake2b(_of_site(page.site), digest_size=16)
    digest.update(f"{page.language}\n{page.text}".encode())
    return digest.digest()


def write_pages(storage: Storage, name: str, seen: Mapping[bytes, bytes]) -> str:
    """Commit what a `PageMemory` saw; the SHA-256 of the file.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    pages = sorted(seen)
    columns = [pa.array(pages, DIGEST), pa.array([seen[page] for page in pages], pa.binary(KEY_BYTES))]
    return write_table(storage, name, pa.table(columns, ["page", "key"]))


@functools.lru_cache(maxsize=4)
def _of_site(site: Site) -> bytes:
    return json.dumps(site.to_dict(), sort_keys=True).encode()
