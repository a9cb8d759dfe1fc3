"""The settings of preprocessing, nested like the recipe; their defaults stand here and nowhere else."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tokenfree.preprocess.common.settings import settings
from tokenfree.preprocess.records.window_columns import COLUMN_TYPES

COLUMNS = tuple(COLUMN_TYPES)


def _known_column(name: str) -> str:
    if name not in COLUMN_TYPES:
        raise ValueError(f"there is no column {name!r} (known: {', '.join(COLUMNS)})")
    return name


Column = Annotated[str, AfterValidator(_known_column)]


@settings
class WindowConfig:
    """How documents become windows. `max_characters` counts codepoints; offsets are uint16, hence the limit."""

    max_characters: Annotated[int, Field(ge=16, le=16383)] = 2040
    pack: Literal["none", "across_documents"] = "none"


@settings
class VocabularyConfig:
    """The SentencePiece model: trained on a sample of the corpus, or the given `model` file. `size` is the most pieces:
    a small corpus gives fewer."""

    model: str | None = None
    size: Annotated[int, Field(ge=300, le=500_000)] = 32_000
    algorithm: Literal["unigram", "bpe"] = "unigram"
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.9995  # SentencePiece takes no less
    byte_fallback: bool = True
    sample_characters: Annotated[int, Field(gt=0)] = 20_000_000
    smoothing: Annotated[float, Field(ge=0, le=1)] = 0.7


@settings
class FilterConfig:
    """Documents outside these bounds are dropped, counted by reason."""

    min_characters: Annotated[int, Field(ge=1)] = 64
    max_characters: Annotated[int, Field(ge=1)] = 20_000_000


@settings
class PreprocessConfig:
    """Everything that decides the bytes of the shards, with the inputs."""

    wikipedia: tuple[str, ...] = ()
    books: tuple[str, ...] = ()
    hf_dataset: tuple[str, ...] = ()  # Hugging Face datasets: a folder or a name, with :CONFIG and @SPLIT
    text_column: str = "text"  # of these datasets
    language: str | None = None  # of all inputs; by default told by each dump and by folder names of books
    namespaces: tuple[int, ...] = (0,)
    window: WindowConfig = WindowConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    filters: FilterConfig = FilterConfig()
    columns: tuple[Column, ...] = COLUMNS
    shards: Annotated[int, Field(ge=1, le=99_999)] | None = None  # a language of a split; by default by its size
    shard_characters: Annotated[int, Field(ge=1000)] = 64_000_000
    split_bytes: Annotated[int, Field(ge=1000)] = 32 * 1024 * 1024  # of decompressed input, read by one worker
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.05
    seed: int = 0
