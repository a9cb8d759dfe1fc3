"""Turn a page into a document: clean text, filters, and failed pages kept for `replay`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tokenfree.preprocess.config import FilterConfig
from tokenfree.preprocess.documents.filters.quality import is_of_languages, reason_of_text
from tokenfree.preprocess.records import Document, Failure, Page, Site
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.wikitext.cleaner import clean_page, page_of
from tokenfree.preprocess.wikitext.templates import Definitions

# Twice what MediaWiki lets an editor save (2 MiB). The cleaner is linear, so this bounds the time and memory
# of a page.
MAX_WIKITEXT_CHARACTERS = 4 << 20
PAGE_ERRORS = (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


_BY_NAME = ("filtered", "failed", "templates", "dropped_templates")


@dataclass
class PageCounters:
    """Counts of the pages of one split by outcome. `pages` is the sum of all others."""

    pages: int = 0
    documents: int = 0
    redirects: int = 0
    other_namespaces: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    templates: Counter[str] = field(default_factory=Counter)  # calls in running text, by what gave their text
    dropped_templates: Counter[str] = field(default_factory=Counter)  # those without a text, by name

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), **{name: dict(getattr(self, name)) for name in _BY_NAME}}

    def add(self, other: dict[str, Any]) -> None:
        """Add the counters of another split, as `to_json` gave them."""
        for name in ("pages", "documents", "redirects", "other_namespaces"):
            setattr(self, name, getattr(self, name) + other[name])
        for name in _BY_NAME:
            getattr(self, name).update(other.get(name, {}))


@dataclass(frozen=True)
class FailedPage:
    """A failure and its page, so that `replay` can retry it. `page` is None for broken input."""

    failure: Failure
    page: Page | None


def extract(
    pages: Iterable[Page | Failure],
    namespaces: tuple[int, ...],
    filters: FilterConfig,
    counters: PageCounters,
    definitions: Callable[[Site], Definitions] | None = None,
) -> Iterator[Document | FailedPage]:
    """Yield the documents and the failures among `pages`. Every page is counted once in `counters`.

    `definitions` returns the templates of a wiki.
    """
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
            result = document_of(page, filters, counters, definitions)
            if isinstance(result, Document):
                counters.documents += 1
                yield result
            elif isinstance(result, Failure):
                counters.failed[result.reason] += 1
                yield FailedPage(result, page)
            else:
                counters.filtered[result] += 1


def document_of(
    page: Page,
    filters: FilterConfig,
    counters: PageCounters,
    definitions: Callable[[Site], Definitions] | None = None,
) -> Document | Failure | str:
    """Return the document of a page, its failure, or the reason for dropping it: not_wikitext or one of `filters`."""
    is_wikitext = page.kind == "wikitext"
    if is_wikitext and page.model != "wikitext":
        return "not_wikitext"
    if filters.languages and not is_of_languages(page.language, filters.languages):
        return "other_language"
    if is_wikitext and len(page.text) > MAX_WIKITEXT_CHARACTERS:
        return Failure(page.id, "too_large", page.text)
    try:
        assert page.site is not None or not is_wikitext, f"a page of wikitext without its site: {page.id}"
        text = page.text
        if page.site is not None:
            of_wiki = Definitions({}, page.site) if definitions is None else definitions(page.site)
            wiki_page = page_of(page.site, page.title, of_wiki)
            text = clean_page(text, wiki_page)
            counters.templates.update(wiki_page.outcomes)
            counters.dropped_templates.update(wiki_page.dropped)
        text = normalize(text).strip()
    except PAGE_ERRORS as error:
        # One bad page must not stop a job of millions. It is kept, and can be replayed.
        return Failure(page.id, f"error: {type(error).__name__}", page.text)
    if reason := reason_of_text(text, filters):
        return reason
    return Document(page.id, page.language, page.title, text)
