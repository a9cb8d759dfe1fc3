"""Records of preprocessing: pages, documents, input splits, sites, and the schema of windows."""

import dataclasses
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

import pyarrow as pa

from tokenfree.core.stored_files import checked

KEY_BYTES = 16


@dataclass(frozen=True)
class Document:
    """A clean article or book.

    `id` is `source:page_id:revision_id` or `source:book`; `language` is BCP 47.
    """

    id: str
    language: str
    title: str
    text: str


@dataclass(frozen=True)
class Failure:
    """A page that could not become a document, with its raw text so that it can be replayed."""

    id: str
    reason: str
    text: str


@dataclass(frozen=True)
class StepFailure(Failure):
    """A failure by an exception in a step that the job adds."""

    error: Exception


def document_key(text: str) -> bytes:
    """Return BLAKE2b-128 of the normalised text, by which documents are sorted, deduplicated and split."""
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()


# Names that MediaWiki understands on every wiki (includes/language: $namespaceNames and aliases).
CANONICAL_NAMESPACES: dict[int, tuple[str, ...]] = {
    -2: ("Media",),
    -1: ("Special",),
    0: ("",),
    1: ("Talk",),
    2: ("User",),
    3: ("User talk",),
    4: ("Project",),
    5: ("Project talk",),
    6: ("File", "Image"),
    7: ("File talk", "Image talk"),
    8: ("MediaWiki",),
    9: ("MediaWiki talk",),
    10: ("Template",),
    11: ("Template talk",),
    12: ("Help",),
    13: ("Help talk",),
    14: ("Category",),
    15: ("Category talk",),
}
UNKNOWN_DATABASE = "wiki"
_NAMESPACE = re.compile(r'<namespace\s[^<>]*?\bkey="(-?\d{1,9})"[^<>]*?(?:/>|>([^<]*)</namespace>)')
_DATABASE = re.compile(r"<dbname>\s*([^<\s]+)\s*</dbname>")
_LANGUAGE = re.compile(r'<mediawiki\b[^<>]*?\bxml:lang="([^"]+)"')


@dataclass(frozen=True)
class Site:
    """A wiki: `database` such as `enwiki`, `language` as BCP 47, and the names of each namespace, local ones first."""

    database: str
    language: str
    namespaces: Mapping[int, tuple[str, ...]]

    def __hash__(self) -> int:
        return hash((self.database, self.language))

    @classmethod
    def from_siteinfo(cls, xml: str, *, database: str | None = None, language: str | None = None) -> Self:
        """Return the site that the head of a dump describes. `database` and `language` override the head.

        Without <siteinfo> it has the names that every wiki understands, and `wiki` and `und` for unknown
        values.
        """
        names = {key: list(canonical) for key, canonical in CANONICAL_NAMESPACES.items()}
        for key, name in _NAMESPACE.findall(xml):
            local = html.unescape(name).strip()
            names[int(key)] = [local, *[other for other in names.get(int(key), []) if other != local]]
        database_match = _DATABASE.search(xml)
        language_match = _LANGUAGE.search(xml)
        return cls(
            database=database or (database_match.group(1) if database_match else UNKNOWN_DATABASE),
            language=language or (language_match.group(1) if language_match else "und"),
            namespaces={key: tuple(names[key]) for key in sorted(names)},
        )

    def namespace_of(self, title: str) -> int:
        """Return the namespace that the title's prefix names, or 0, for dumps that are too old to have <ns>."""
        prefix, colon, _ = title.partition(":")
        folded_prefix = prefix.replace("_", " ").strip().casefold()
        if not colon or not folded_prefix:
            return 0
        return next(
            (key for key, names in self.namespaces.items() if folded_prefix in map(str.casefold, names)), 0
        )


Format = Literal["xml", "bz2", "gz", "xz", "zst", "text", "jsonl", "parquet", "hf", "custom"]


@dataclass(frozen=True)
class InputSplit:
    """A part of the inputs that one worker reads at once.

    A part of a dump is the pages that start in `[start, end)` of its only input (bytes of the stored file;
    for bz2, of the streams that start there). Parts of JSONL are byte ranges too, those of Parquet and of
    datasets ranges of row groups or rows. A part of text books is several whole files, one of a custom
    reader is one file. `names` are the inputs' names in ids. `versions` show whether an input has changed.
    `size` estimates the bytes after decompression.
    """

    kind: Literal["wikipedia", "books"]
    format: Format
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    versions: tuple[str, ...]
    languages: tuple[str, ...]
    start: int = 0
    end: int = 0
    size: int = 0
    language_given: bool = False  # given by the job, so it overrides that of a line of a table
    site: Site | None = None
    encoding: str = "utf-8"
    rooted: bool = False  # the dump opens with <mediawiki>, so one without </mediawiki> has lost its end
    text_column: str = "text"  # this and the next two belong to a table
    id_column: str = "id"
    language_column: str = "language"
    needs_ns: bool = False  # export formats from 0.6 on carry <ns>; a page without it is broken

    def to_json(self) -> str:
        """Return one line of JSON. Equal splits give equal lines."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Self:
        return checked(cls, json.loads(line))


@dataclass(frozen=True)
class Page:
    """A page of a wiki or a book, before cleaning.

    `id` is `enwiki:PAGE:REVISION` or `books:NAME`. `text` always encodes to UTF-8. `model` is MediaWiki's
    content model (`wikitext`, `css`, `Scribunto` ...), or `plain` for a book.
    """

    id: str
    language: str
    title: str
    text: str
    namespace: int = 0
    redirect: bool = False
    model: str = "plain"
    site: Site | None = None
    kind: Literal["wikitext", "plain"] = "plain"


def _list_of(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", item, nullable=False))


COLUMN_TYPES: dict[str, pa.DataType] = {
    "document": pa.string(),
    "language": pa.string(),
    "text": pa.string(),
    "codepoints": _list_of(pa.int32()),
    "whitespace": _list_of(pa.bool_()),
    "word_starts": _list_of(pa.uint16()),
    "word_ends": _list_of(pa.uint16()),
    "subword_ids": _list_of(pa.int32()),
    "subword_starts": _list_of(pa.uint16()),
    "subword_ends": _list_of(pa.uint16()),
    "sentence_starts": _list_of(pa.uint16()),
}
CHARACTER_COLUMNS = frozenset({"codepoints", "whitespace"})  # follow from `text`
SUBWORD_COLUMNS = frozenset({"subword_ids", "subword_starts", "subword_ends"})

SCHEMA_VERSION = 1
MAX_WINDOW_CHARACTERS = 16_383  # at most 4 bytes a character, and byte offsets are uint16
MAX_BATCH_ROWS = 1000


def schema(columns: Iterable[str] = tuple(COLUMN_TYPES)) -> pa.Schema:
    """Return the schema of windows with these columns, in the order of `COLUMN_TYPES`.

    Raises ValueError for others.
    """
    chosen = set(columns)
    unknown = chosen - COLUMN_TYPES.keys()
    if unknown:
        raise ValueError(f"columns: there is no column {min(unknown)!r} (known: {', '.join(COLUMN_TYPES)})")
    fields = [pa.field(name, kind, nullable=False) for name, kind in COLUMN_TYPES.items() if name in chosen]
    return pa.schema(fields, metadata={"schema_version": str(SCHEMA_VERSION)})


def readable_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns of rows whose shards have these: with `text`, also those that follow from it."""
    names = set(columns)
    if "text" in names:
        names |= CHARACTER_COLUMNS
    return [name for name in COLUMN_TYPES if name in names]
