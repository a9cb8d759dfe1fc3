"""One page to one document: wikitext to clean text, Unicode clean-up, filters; what is dropped is counted by reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tokenfree.preprocess.config import FilterConfig, PreprocessConfig
from tokenfree.preprocess.documents.filters.reasons import reason_of_language, reason_of_text
from tokenfree.preprocess.records.document import Document, Failure
from tokenfree.preprocess.records.input_split import InputSplit
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.sources.input_splits import read_split
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.wikitext.cleaner import clean

# MediaWiki itself stops at 2 MiB a page; the cleaner is linear, so this bounds the time and memory of one page.
MAX_WIKITEXT_CHARACTERS = 8_000_000
PAGE_ERRORS = (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


@dataclass
class PageCounters:
    """What became of the pages of one split: `pages` is the sum of all others."""

    pages: int = 0
    documents: int = 0
    redirects: int = 0
    other_namespaces: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "filtered": dict(self.filtered), "failed": dict(self.failed)}

    def add(self, other: dict[str, Any]) -> None:
        """Add the counters of another split, as `to_json` gave them."""
        for name in ("pages", "documents", "redirects", "other_namespaces"):
            setattr(self, name, getattr(self, name) + other[name])
        self.filtered.update(other["filtered"])
        self.failed.update(other["failed"])


@dataclass(frozen=True)
class FailedPage:
    """A failure with what is known of its page, so that `replay` can try it again; `page` is None for broken input."""

    failure: Failure
    page: Page | None


def extract(
    pages: Iterable[Page | Failure],
    namespaces: tuple[int, ...],
    filters: FilterConfig,
    counters: PageCounters,
) -> Iterator[Document | FailedPage]:
    """The documents and the failures among `pages`; every page is counted once in `counters`."""
    for page in pages:
        counters.pages += 1
        if isinstance(page, Failure):
            counters.failed[page.reason] += 1
            yield FailedPage(page, None)
        elif page.namespace not in namespaces and page.kind == "wikitext":
            counters.other_namespaces += 1
        elif page.redirect:
            counters.redirects += 1
        else:
            made = document_of(page, filters)
            if isinstance(made, Document):
                counters.documents += 1
                yield made
            elif isinstance(made, Failure):
                counters.failed[made.reason] += 1
                yield FailedPage(made, page)
            else:
                counters.filtered[made] += 1


class Sample(NamedTuple):
    """Characters of clean text and CPU seconds of a split for each byte after decompression, by its first pages."""

    characters_per_byte: float
    seconds_per_byte: float


def sample_split(split: InputSplit, config: PreprocessConfig, seconds: float) -> Sample:
    """Read and clean the first pages of a split for about `seconds` of CPU time, or all of it where that is less.

    Raises:
        OSError: an input cannot be opened or read.
    """
    characters = size = 0
    start = time.process_time()
    for page in read_split(split):
        size += len(page.text.encode(errors="replace"))
        for made in extract([page], config.namespaces, config.filters, PageCounters()):
            characters += len(made.text) if isinstance(made, Document) else 0
        if time.process_time() - start >= seconds:
            break
    else:
        size = split.size  # all of it, with what is around the texts
    size = max(size, 1)
    return Sample(characters / size, (time.process_time() - start) / size)


def document_of(page: Page, filters: FilterConfig) -> Document | Failure | str:
    """The clean document of a page, its failure, or the reason why it is dropped: not_wikitext or one of `filters`."""
    if page.kind == "wikitext" and page.model != "wikitext":
        return "not_wikitext"
    if reason := reason_of_language(page.language, filters):
        return reason
    if page.kind == "wikitext" and len(page.text) > MAX_WIKITEXT_CHARACTERS:
        return Failure(page.id, "too_large", page.text)
    try:
        text = normalize(_plain_text(page)).strip()
    except PAGE_ERRORS as error:
        # One page that the cleaner cannot stand must not stop a job of millions; it is kept, and can be replayed.
        return Failure(page.id, f"error: {type(error).__name__}", page.text)
    if reason := reason_of_text(text, filters):
        return reason
    return Document(page.id, page.language, page.title, text)


def _plain_text(page: Page) -> str:
    if page.kind == "plain":
        return page.text
    assert page.site is not None, f"a page of wikitext without its site: {page.id}"
    return clean(page.text, page.site)
