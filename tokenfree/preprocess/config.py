"""Settings of preprocessing, nested as in a recipe, with their defaults; and the steps that they may add."""

import codecs
import difflib
import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tokenfree.core.settings import DECIDES_RUNS, OPERATIONAL, PathText, Slot, build, settings
from tokenfree.preprocess.records import COLUMN_TYPES, Document, Site
from tokenfree.preprocess.text.characters import SCRIPTS

COLUMNS = tuple(COLUMN_TYPES)
INPUT = "input"  # mark of settings that say where inputs lie; jobs compare the content of inputs instead


def _check_column(name: str) -> str:
    if name not in COLUMN_TYPES:
        raise ValueError(f"there is no column {name!r} (known: {', '.join(COLUMNS)})")
    return name


def _check_script(name: str) -> str:
    if name not in SCRIPTS:
        nearest = ", ".join(difflib.get_close_matches(name.title(), SCRIPTS)) or "Latin, Cyrillic, Han, ..."
        raise ValueError(f"there is no script {name!r} in Unicode (known: {nearest})")
    return name


def _check_encoding(name: str) -> str:
    try:
        # Also refuses codecs that are none of text, such as zlib.
        "".encode(name)
        return codecs.lookup(name).name
    except LookupError as error:
        raise ValueError(
            f"Python has no encoding {name!r}; give a name such as cp1250 or iso8859-2"
        ) from error


Column = Annotated[str, AfterValidator(_check_column)]
Script = Annotated[str, AfterValidator(_check_script)]
Encoding = Annotated[str, AfterValidator(_check_encoding)]


@settings
class WindowConfig:
    """How documents are cut into windows.

    Attributes:
        max_characters: maximum number of codepoints of a window, 16 to 16383 (offsets are uint16).
        pack: `none`: a window holds text of one document; `across_documents`: neighbours of one language are
            joined first.
    """

    max_characters: Annotated[int, Field(ge=16, le=16383)] = 2040
    pack: Literal["none", "across_documents"] = "none"


@settings
class VocabularyConfig:
    """The SentencePiece model, trained on a sample of the corpus or read from `model`.

    Attributes:
        model: path of a SentencePiece model to use; null: one is trained.
        size: maximum number of pieces, 300 to 500000; a small corpus gives fewer.
        algorithm: training algorithm of SentencePiece.
        character_coverage: share of the sample's characters that get a piece, 0.98 to 1, as SentencePiece
            requires.
        required_characters: characters that always get a piece. `ascii`: the 95 printable ones; `none`: only
            those of `character_coverage`.
        byte_fallback: spell characters without a piece in bytes; otherwise they are unknown.
        sample_characters: number of characters in the training sample.
        smoothing: exponent of a language's share of the sample. 1: in proportion to its characters; 0: equal
            shares.
    """

    model: PathText | None = None
    size: Annotated[int, Field(ge=300, le=500_000)] = 32_000
    algorithm: Literal["unigram", "bpe"] = "unigram"
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.9995
    required_characters: Literal["ascii", "none"] = "ascii"
    byte_fallback: bool = True
    sample_characters: Annotated[int, Field(gt=0)] = 20_000_000
    smoothing: Annotated[float, Field(ge=0, le=1)] = 0.7


@settings
class FilterConfig:
    """Filters of documents. Dropped documents are counted by reason.

    Attributes:
        min_characters: drop shorter documents.
        max_characters: drop longer documents.
        languages: drop documents whose source names none of these languages (BCP 47; `zh` includes
            `zh-Hant`); []: no filter.
        scripts: drop documents with too few letters of these writing systems (Unicode names, such as Latin,
            Han); []: no filter. Languages are not identified.
        min_script_share: with `scripts`, minimum share of their letters among all letters.
        max_symbol_share: maximum share of visible characters that are neither letters, marks nor digits;
            null: no filter.
        max_repeated_line_share: maximum share of characters in repeated lines; null: no filter.
        also: further filters, which run after those above in this order: `{name: language, ...}`, or a custom
            class with its keys, `{name: MODULE.CLASS, ...}`.
    """

    min_characters: Annotated[int, Field(ge=1)] = 64
    max_characters: Annotated[int, Field(ge=1)] = 20_000_000
    languages: tuple[str, ...] = ()
    scripts: tuple[Script, ...] = ()
    min_script_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    max_symbol_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    max_repeated_line_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    also: tuple[dict[str, Any], ...] = ()


@settings
class ReaderConfig:
    """Readers of books in other formats.

    Attributes:
        also: custom classes with their keys, `{name: MODULE.CLASS, ...}`. Each reads the books whose names
            end in its suffix.
    """

    also: tuple[dict[str, Any], ...] = ()


@settings
class NearDuplicateConfig:
    """Filter of documents that are almost equal to another one of their language (MinHash).

    Attributes:
        min_similarity: drop documents with at least this estimated Jaccard similarity to one that stays, 0.5
            to 1; null: no filter.
        shingle_characters: number of characters of a shingle.
    """

    min_similarity: Annotated[float, Field(ge=0.5, le=1)] | None = None
    shingle_characters: Annotated[int, Field(ge=1, le=1000)] = 9


@settings
class PreprocessConfig:
    """The inputs and everything that decides the bytes of the shards.

    Attributes:
        wikipedia: dump files, folders, globs or URLs.
        books: book files, folders, globs or URLs.
        hf_dataset: Hugging Face datasets: a folder or a name, with :CONFIG and @SPLIT.
        text_column: column or field with the text, in datasets, Parquet tables and JSON lines.
        id_column: column that names a document, if there is one.
        language_column: column with a document's language (BCP 47), if there is one; `language` overrides it.
        language: language of all inputs; null: from each dump, and from the folder names of books.
        encoding: encoding of all text files, such as cp1250; null: detected for each.
        expand_templates: show what the wiki's own definitions make of templates in running text; without Lua. false:
            rules and guesses only.
        templates_from: further dumps of the same wikis, read for their templates only.
        namespaces: numbers of the wiki namespaces to read; 0: articles.
        window: how documents are cut into windows.
        readers: readers of books in other formats.
        cleaner: custom class with its keys, `{name: MODULE.CLASS, ...}`, that turns wikitext into text; null: that of
            tokenfree.
        vocabulary: the subwords.
        filters: filters of documents.
        keep_dropped: write the documents that filters drop to `dropped/`, in the form of `failures/`.
        near_duplicates: filter of almost equal documents.
        columns: columns of the windows; leave out those that no model will read. `codepoints` and `whitespace`
            follow from `text`, and training derives them where they are left out.
        shards: number of shards of each language of a split, 1 to 99999; null: by its size.
        shard_characters: approximate characters of a shard if `shards` is null.
        split_bytes: decompressed bytes that a worker reads, cleans and commits at once.
        validation_fraction: share of held-out documents, 0 to below 1.
        seed: seed of the vocabulary's training.
    """

    wikipedia: Annotated[tuple[PathText, ...], INPUT] = ()
    books: Annotated[tuple[PathText, ...], INPUT] = ()
    hf_dataset: Annotated[tuple[PathText, ...], INPUT] = ()
    text_column: Annotated[str, DECIDES_RUNS] = "text"
    id_column: Annotated[str, DECIDES_RUNS] = "id"
    language_column: Annotated[str, DECIDES_RUNS] = "language"
    language: Annotated[str | None, DECIDES_RUNS] = None
    encoding: Annotated[Encoding | None, DECIDES_RUNS] = None
    expand_templates: Annotated[bool, DECIDES_RUNS] = True
    templates_from: Annotated[tuple[PathText, ...], INPUT] = ()
    namespaces: Annotated[tuple[int, ...], DECIDES_RUNS] = (0,)
    window: WindowConfig = WindowConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    readers: Annotated[ReaderConfig, DECIDES_RUNS] = ReaderConfig()
    cleaner: Annotated[dict[str, Any] | None, DECIDES_RUNS] = None
    filters: Annotated[FilterConfig, DECIDES_RUNS] = FilterConfig()
    keep_dropped: Annotated[bool, DECIDES_RUNS] = False
    near_duplicates: Annotated[NearDuplicateConfig, DECIDES_RUNS] = NearDuplicateConfig()
    columns: tuple[Column, ...] = COLUMNS
    shards: Annotated[int, Field(ge=1, le=99_999)] | None = None
    shard_characters: Annotated[int, Field(ge=1000)] = 64_000_000
    split_bytes: Annotated[int, Field(ge=1000), OPERATIONAL] = 32 * 1024 * 1024
    validation_fraction: Annotated[float, Field(ge=0, lt=1), DECIDES_RUNS] = 0.05
    seed: int = 0


class Step(ABC):
    """Base class of filters, readers and cleaners. A class of one is also its settings, decorated with `@settings`.

    A process builds a step once and uses it for all pages, on some engines in several threads.

    Attributes:
        packages: Installed packages whose versions decide the result, as part of the job's fingerprint.
    """

    name: str
    packages: tuple[str, ...] = ()


class Filter(Step):
    @abstractmethod
    def reason(self, document: Document, /) -> str | None:
        """Return why a document is dropped, under which it is counted, or None if it stays."""


class Reader(Step):
    @property
    @abstractmethod
    def suffix(self) -> str:
        """End of the names of the files that it reads, such as `.epub`. A class attribute suffices."""

    @abstractmethod
    def documents(self, path: str, /) -> Iterable[Document]:
        """Yield the documents of a file, a path or an address, with ids that are unique in it.

        If `language` is empty, it is that of the file.
        """


class Cleaner(Step):
    @abstractmethod
    def clean(self, wikitext: str, site: Site, title: str, /) -> str:
        """Return the text of a page of a wiki."""


FILTER = Slot("tokenfree.preprocess.documents.filters", "language", f"{__name__}.Filter")
READER = Slot("tokenfree.preprocess.sources", "", f"{__name__}.Reader")
CLEANER = Slot("tokenfree.preprocess.wikitext", "", f"{__name__}.Cleaner")


@settings
class Steps:
    """The steps that a job adds.

    Attributes:
        filters: those of `filters.also`.
        readers: those of `readers.also`.
        cleaner: the class of `cleaner`, or None for the one of tokenfree.
    """

    filters: tuple[Annotated[Any, FILTER], ...] = ()
    readers: tuple[Annotated[Any, READER], ...] = ()
    cleaner: Annotated[Any, CLEANER] | None = None


NO_STEPS = Steps()


def steps_of(config: PreprocessConfig) -> Steps:
    """Return the steps that a config adds, built once per process.

    Raises UserError if they are invalid, cannot be imported or are not trusted.
    """
    return _built(json.dumps([config.filters.also, config.readers.also, config.cleaner]))


@functools.lru_cache(maxsize=4)
def _built(text: str) -> Steps:
    filters, readers, cleaner = json.loads(text)
    return build(Steps, {"filters": filters, "readers": readers, "cleaner": cleaner}, source="steps")
