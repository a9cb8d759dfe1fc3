"""The columns of a window, one row of a shard, in their order and with their Arrow types: the one list of them."""

import pyarrow as pa


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
SUBWORD_COLUMNS = frozenset({"subword_ids", "subword_starts", "subword_ends"})
