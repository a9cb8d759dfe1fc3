"""The columns of a window (one row of a shard), as Arrow types: the contract between preprocessing and training."""

from collections.abc import Iterable

import pyarrow as pa

from preprocess.config import COLUMNS

SCHEMA_VERSION = 1
MAX_WINDOW_CHARACTERS = 16_383  # 4 bytes a character at most, and byte offsets are uint16


def _list_of(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", item, nullable=False))


TYPES: dict[str, pa.DataType] = {
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


def schema(columns: Iterable[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of windows with these columns, in the order of `COLUMNS` whatever the order given."""
    chosen = set(columns)
    unknown = chosen - set(COLUMNS)
    if unknown:
        raise ValueError(f"columns: there is no column {min(unknown)!r} (known: {', '.join(COLUMNS)})")
    fields = [pa.field(name, TYPES[name], nullable=False) for name in COLUMNS if name in chosen]
    return pa.schema(fields, metadata={"schema_version": str(SCHEMA_VERSION)})
