"""Turn a page into a document: clean text, filters, and failed pages kept for `replay`."""

import contextlib
import heapq
import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tokenfree.core.errors import is_utf8
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import FilterConfig
from tokenfree.preprocess.records import Document, Failure, Page
from tokenfree.preprocess.text.characters import codepoints_of, scripts_of
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.wikitext.cleaner import clean

# Twice what MediaWiki lets an editor save (2 MiB). The cleaner is linear, so this bounds the time and memory of a page.
MAX_WIKITEXT_CHARACTERS = 4 << 20
PAGE_ERRORS = (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


@dataclass
class PageCounters:
    """Counts of the pages of one split by outcome. `pages` is the sum of all others."""

    pages: int = 0
    documents: int = 0
    redirects: int = 0
    other_namespaces: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "filtered": dict(self.filtered), "failed": dict(self.failed)}

    def add(self, other: dict[str, Any]) -> None:
        """Add the counters of another split, as `to_json` gave them."""
        for name in ("pages", "documents", "redirects", "other_namespaces"):
            setattr(self, name, getattr(self, name) + other[name])
        self.filtered.update(other["filtered"])
        self.failed.update(other["failed"])


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
) -> Iterator[Document | FailedPage]:
    """Yield the documents and the failures among `pages`. Every page is counted once in `counters`."""
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


def document_of(page: Page, filters: FilterConfig) -> Document | Failure | str:
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
        text = normalize(page.text if page.site is None else clean(page.text, page.site)).strip()
    except PAGE_ERRORS as error:
        # One bad page must not stop a job of millions. It is kept, and can be replayed.
        return Failure(page.id, f"error: {type(error).__name__}", page.text)
    if reason := reason_of_text(text, filters):
        return reason
    return Document(page.id, page.language, page.title, text)


# Filters of documents, cheap ones first. Each dropped document has one counted reason. The filter by scripts identifies
# no language, because no locked library does that well enough: charset-normalizer named 9 of 17 pieces of 500
# characters of Finnish, and took Belarusian for Russian (sentences of Tatoeba).


def is_of_languages(tag: str, wanted: Iterable[str]) -> bool:
    """Return True if a tag lies in one of the ranges `wanted`: `zh` includes `zh-Hant` (RFC 4647, section 3.3.1)."""
    lower = tag.lower()
    return any(lower == each.lower() or lower.startswith(f"{each.lower()}-") for each in wanted)


def repeated_line_share(text: str) -> float:
    """Return the share of characters in repeated lines (Gopher, https://arxiv.org/abs/2112.11446, table A1), or 0."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    characters = sum(map(len, lines))
    once = sum(map(len, set(lines)))
    return (characters - once) / characters if characters else 0.0


def script_share(text: str, scripts: Collection[str]) -> float:
    """Return the share of a text's letters, without digits and punctuation, that belong to one of `scripts`, or 0."""
    kinds, counts = np.unique(codepoints_of(text), return_counts=True)  # few distinct characters
    names = scripts_of(kinds)
    letters = counts[names != ""].sum()
    return float(counts[np.isin(names, list(scripts))].sum() / letters) if letters else 0.0


_PASSED_OVER = ("Z", "Cc", "Cf")  # white space and invisible characters, such as joiners inside words


def symbol_share(text: str) -> float:
    """Return the share of visible characters, such as punctuation, that are neither letters, marks nor digits, or 0."""
    kinds = [(unicodedata.category(character), count) for character, count in Counter(text).items()]
    visible = sum(count for kind, count in kinds if not kind.startswith(_PASSED_OVER))
    letters = sum(count for kind, count in kinds if kind[0] in "LMN")
    return (visible - letters) / visible if visible else 0.0


def reason_of_text(text: str, filters: FilterConfig) -> str | None:
    """Return why a clean text is dropped, such as `too_short`, or None if it stays."""
    if not text:
        return "empty"
    if len(text) < filters.min_characters:
        return "too_short"
    if len(text) > filters.max_characters:
        return "too_long"
    if filters.scripts and script_share(text, filters.scripts) < filters.min_script_share:
        return "other_script"
    if filters.max_symbol_share is not None and symbol_share(text) > filters.max_symbol_share:
        return "too_many_symbols"
    if filters.max_repeated_line_share is not None and repeated_line_share(text) > filters.max_repeated_line_share:
        return "repeated_lines"
    return None


FOLDER = "failures"
PART_BYTES = 64 * 1024 * 1024
OPEN_FILES = 256


def write_failures(storage: Storage, name: str, failed: Iterable[tuple[FailedPage, str]]) -> tuple[int, str]:
    """Commit the failures of one input split, sorted, and return their number and the file's SHA-256.

    Without failures, no file is written. Raises UserError if the directory cannot be written to.
    """
    lines = sorted(_line(page, source) for page, source in failed)
    return len(lines), storage.write_bytes(name, b"".join(lines)).sha256 if lines else ""


def first_failure(storage: Storage, name: str) -> str:
    """Return the id of the first failure in a file of `write_failures`."""
    with storage.open(name) as lines:
        return json.loads(lines.readline())["id"]


def collect_failures(storage: Storage, names: Sequence[str], scratch: str) -> int:
    """Merge the failures of all splits into parts of bounded size, and return the number of parts.

    Splits do not affect the order. `scratch` is a folder for intermediate files. Raises UserError if the directory
    cannot be written to.
    """
    storage.remove(FOLDER)
    waiting = list(names)
    rounds = 0
    while len(waiting) > OPEN_FILES:
        merged = f"{scratch}/merged-{rounds:05}.jsonl"
        with (
            _merged(storage, waiting[:OPEN_FILES]) as lines,
            storage.new_file(merged) as new,
            open(new.path, "wb") as out,
        ):
            out.writelines(lines)
        waiting = [*waiting[OPEN_FILES:], merged]
        rounds += 1
    parts = 0
    with _merged(storage, waiting) as lines:
        line = next(lines, None)
        while line is not None:
            with storage.new_file(f"{FOLDER}/part-{parts:05}.jsonl") as new, open(new.path, "wb") as part:
                while line is not None and part.tell() < PART_BYTES:
                    part.write(line)
                    line = next(lines, None)
            parts += 1
    return parts


@contextlib.contextmanager
def _merged(storage: Storage, names: Sequence[str]) -> Iterator[Iterator[bytes]]:
    with contextlib.ExitStack() as stack:
        yield heapq.merge(*[stack.enter_context(storage.open(name)) for name in names])


def read_failures(storage: Storage) -> Iterator[dict[str, Any]]:
    """Yield the rows of all parts: id, reason, source, text, and the rest of the page if one was found."""
    for name in storage.names(FOLDER):
        if name.startswith("part-"):
            with storage.open(f"{FOLDER}/{name}") as part:
                yield from map(json.loads, part)


def _line(failed: FailedPage, source: str) -> bytes:
    page = None
    if failed.page is not None:
        page = {name: value for name, value in asdict(failed.page).items() if name not in ("id", "text")}
    failure = failed.failure
    row = {"id": failure.id, "reason": failure.reason, "source": source, "text": failure.text, "page": page}
    # Lone surrogates of undecodable input become escapes, because JSON cannot hold them otherwise.
    return (json.dumps(row, ensure_ascii=failure.text.isascii() or not is_utf8(failure.text)) + "\n").encode()
