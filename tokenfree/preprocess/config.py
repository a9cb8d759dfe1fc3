"""The settings of preprocessing, nested like the recipe; their defaults stand here and nowhere else."""

import difflib
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tokenfree.core.settings import settings
from tokenfree.preprocess.records import COLUMN_TYPES
from tokenfree.preprocess.text.scripts import SCRIPTS

COLUMNS = tuple(COLUMN_TYPES)


def _known_column(name: str) -> str:
    if name not in COLUMN_TYPES:
        raise ValueError(f"there is no column {name!r} (known: {', '.join(COLUMNS)})")
    return name


def _known_script(name: str) -> str:
    if name not in SCRIPTS:
        nearest = ", ".join(difflib.get_close_matches(name.title(), SCRIPTS)) or "Latin, Cyrillic, Han, ..."
        raise ValueError(f"there is no script {name!r} in Unicode (known: {nearest})")
    return name


Column = Annotated[str, AfterValidator(_known_column)]
Script = Annotated[str, AfterValidator(_known_script)]


@settings
class WindowConfig:
    """How documents become windows.

    Attributes:
        max_characters: the most codepoints of a window, 16 to 16383, because offsets are uint16.
        pack: `none`: a window is of one document; `across_documents`: neighbours of one language are joined
            before they are cut.
    """

    max_characters: Annotated[int, Field(ge=16, le=16383)] = 2040
    pack: Literal["none", "across_documents"] = "none"


@settings
class VocabularyConfig:
    """The SentencePiece model: trained on a sample of the corpus, or the given `model` file.

    Attributes:
        model: file of a SentencePiece model to take; null: one is trained.
        size: the most pieces, 300 to 500000; a small corpus gives fewer.
        algorithm: of SentencePiece.
        character_coverage: share of the sample's characters that have a piece of their own, 0.98 to 1; SentencePiece
            takes no less.
        required_characters: characters that have a piece of their own whatever the sample holds. `ascii`: the 95
            printable ones; `none`: no others than `character_coverage` gives.
        byte_fallback: characters without a piece are spelled in bytes, and not unknown.
        sample_characters: characters of the sample that it is trained on.
        smoothing: a language's share of the sample is proportional to its characters to this power: 1 as it is, 0 all
            alike.
    """

    model: str | None = None
    size: Annotated[int, Field(ge=300, le=500_000)] = 32_000
    algorithm: Literal["unigram", "bpe"] = "unigram"
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.9995
    required_characters: Literal["ascii", "none"] = "ascii"
    byte_fallback: bool = True
    sample_characters: Annotated[int, Field(gt=0)] = 20_000_000
    smoothing: Annotated[float, Field(ge=0, le=1)] = 0.7


@settings
class FilterConfig:
    """Documents outside these bounds are dropped, counted by reason.

    Attributes:
        min_characters: shorter documents are dropped.
        max_characters: longer documents are dropped.
        languages: documents whose source tells none of these languages (BCP 47; `zh` takes `zh-Hant` too) are dropped;
            []: none.
        scripts: documents with too few letters of these writing systems (names of Unicode, such as Latin, Han) are
            dropped; []: none. No language is identified by it.
        min_script_share: of the letters, with `scripts`: documents with less are dropped.
        max_symbol_share: of the visible characters, that are neither letters, marks nor digits: documents with more are
            dropped; null: none.
        max_repeated_line_share: of the characters, in lines that stood in the document before: documents with more are
            dropped; null: none.
    """

    min_characters: Annotated[int, Field(ge=1)] = 64
    max_characters: Annotated[int, Field(ge=1)] = 20_000_000
    languages: tuple[str, ...] = ()
    scripts: tuple[Script, ...] = ()
    min_script_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    max_symbol_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    max_repeated_line_share: Annotated[float, Field(ge=0, lt=1)] | None = None


@settings
class NearDuplicateConfig:
    """Which documents are dropped because another of their language is almost equal (MinHash).

    Attributes:
        min_similarity: documents are dropped whose shingles overlap those of one that stays by this share (estimated
            Jaccard similarity) or more, 0.5 to 1; null: none.
        shingle_characters: of a shingle.
    """

    min_similarity: Annotated[float, Field(ge=0.5, le=1)] | None = None
    shingle_characters: Annotated[int, Field(ge=1, le=1000)] = 9


@settings
class PreprocessConfig:
    """Everything that decides the bytes of the shards, with the inputs.

    Attributes:
        wikipedia: dump files, folders, globs or URLs.
        books: book files, folders, globs or URLs.
        hf_dataset: Hugging Face datasets: a folder or a name, with :CONFIG and @SPLIT.
        text_column: of datasets, Parquet tables and JSON lines: the column (field) with the text.
        id_column: the column that names a document, where there is one.
        language_column: the column with its language (BCP 47), where there is one; `language` wins over it.
        language: of all inputs; null: told by each dump and by folder names of books.
        namespaces: of a wiki, by number, whose pages are read; 0: articles.
        window: how documents become windows.
        vocabulary: the subwords.
        filters: which documents are dropped.
        near_duplicates: which of them are dropped because another one is almost equal.
        columns: of the windows; what no model will read may be left out.
        shards: of each language of a split, 1 to 99999; null: by its size.
        shard_characters: about how many characters a shard has where `shards` is null.
        split_bytes: of decompressed input that a worker reads, cleans and commits at once.
        validation_fraction: share of the documents that are held out, 0 to below 1.
        seed: of the training of the vocabulary.
    """

    wikipedia: tuple[str, ...] = ()
    books: tuple[str, ...] = ()
    hf_dataset: tuple[str, ...] = ()
    text_column: str = "text"
    id_column: str = "id"
    language_column: str = "language"
    language: str | None = None
    namespaces: tuple[int, ...] = (0,)
    window: WindowConfig = WindowConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    filters: FilterConfig = FilterConfig()
    near_duplicates: NearDuplicateConfig = NearDuplicateConfig()
    columns: tuple[Column, ...] = COLUMNS
    shards: Annotated[int, Field(ge=1, le=99_999)] | None = None
    shard_characters: Annotated[int, Field(ge=1000)] = 64_000_000
    split_bytes: Annotated[int, Field(ge=1000)] = 32 * 1024 * 1024
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.05
    seed: int = 0
