"""Turn a page into a document: clean text, filters, and failed pages kept for `replay`."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tokenfree.preprocess.config import NO_STEPS, Filter, FilterConfig, Step, Steps
from tokenfree.preprocess.documents.filters.quality import is_of_languages, reason_of_text
from tokenfree.preprocess.records import Document, Failure, Page, Site, StepFailure
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
        for name in ("pages", "documents", "redirects", "other_namespaces"):
            setattr(self, name, getattr(self, name) + other[name])
        for name in _BY_NAME:
            getattr(self, name).update(other.get(name, {}))


@dataclass(frozen=True)
class FailedPage:
    """A failure and its page, so that `replay` can retry it. `page` is None for broken input."""

    failure: Failure
    page: Page | None


@dataclass(frozen=True)
class DroppedPage:
    """A page that a filter dropped, and its document if it was already cleaned."""

    reason: str
    page: Page
    document: Document | None = None

    @property
    def failure(self) -> Failure:
        """The page as a row of `dropped/`, with its clean text, or the raw one if there is no clean text."""
        clean_text = "" if self.document is None else self.document.text
        return Failure(self.page.id, self.reason, clean_text or self.page.text)


class StepError(Exception):
    """An exception in the step that the message names. The exception is the cause."""


def extract(
    pages: Iterable[Page | Failure],
    namespaces: tuple[int, ...],
    filters: FilterConfig,
    counters: PageCounters,
    definitions: Callable[[Site], Definitions] | None = None,
    steps: Steps = NO_STEPS,
) -> Iterator[Document | FailedPage | DroppedPage]:
    """Yield the documents, the failures and what filters drop among `pages`. Every page is counted once in `counters`.

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
            result = document_of(page, filters, counters, definitions, steps)
            if isinstance(result, Document):
                counters.documents += 1
                yield result
            elif isinstance(result, Failure):
                counters.failed[result.reason] += 1
                yield FailedPage(result, page)
            else:
                counters.filtered[result.reason] += 1
                yield result


def document_of(
    page: Page,
    filters: FilterConfig,
    counters: PageCounters,
    definitions: Callable[[Site], Definitions] | None = None,
    steps: Steps = NO_STEPS,
) -> Document | Failure | DroppedPage:
    is_wikitext = page.kind == "wikitext"
    if is_wikitext and page.model != "wikitext":
        return DroppedPage("not_wikitext", page)
    if filters.languages and not is_of_languages(page.language, filters.languages):
        return DroppedPage("other_language", page)
    if is_wikitext and len(page.text) > MAX_WIKITEXT_CHARACTERS:
        return Failure(page.id, "too_large", page.text)
    try:
        text = _clean_text(page, counters, definitions, steps)
        document = Document(page.id, page.language, page.title, text)
        reason = reason_of_text(text, filters) or _reason_of_steps(document, steps.filters)
    except StepError as error:
        cause = error.__cause__
        assert isinstance(cause, Exception)
        return StepFailure(page.id, f"{error}: {type(cause).__name__}", page.text, cause)
    except PAGE_ERRORS as error:
        # One bad page must not stop a job of millions. It is kept, and can be replayed.
        return Failure(page.id, f"error: {type(error).__name__}", page.text)
    return DroppedPage(reason, page, document) if reason else document


def _clean_text(
    page: Page, counters: PageCounters, definitions: Callable[[Site], Definitions] | None, steps: Steps
) -> str:
    assert page.site is not None or page.kind != "wikitext", f"a page of wikitext without its site: {page.id}"
    if page.site is None:
        return normalize(page.text).strip()
    if steps.cleaner is not None:
        with _step_errors(steps.cleaner):
            return normalize(steps.cleaner.clean(page.text, page.site, page.title)).strip()
    of_wiki = Definitions({}, page.site) if definitions is None else definitions(page.site)
    wiki_page = page_of(page.site, page.title, of_wiki)
    text = clean_page(page.text, wiki_page)
    counters.templates.update(wiki_page.outcomes)
    counters.dropped_templates.update(wiki_page.dropped)
    return normalize(text).strip()


def _reason_of_steps(document: Document, filters: Iterable[Filter]) -> str | None:
    for step in filters:
        with _step_errors(step):
            reason = step.reason(document)
            if not isinstance(reason, str | None):
                raise TypeError(f"reason() returned {reason!r}, not a text or None")
        if reason:
            return reason
    return None


@contextlib.contextmanager
def _step_errors(step: Step) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StepError(step.name) from error
