"""The schema of shards is a contract: names, order, types and version."""

import pyarrow as pa
import pytest

from tokenfree.preprocess.config import COLUMNS
from tokenfree.preprocess.records import MAX_WINDOW_CHARACTERS, SCHEMA_VERSION, schema

ITEMS = {
    "codepoints": pa.int32(),
    "whitespace": pa.bool_(),
    "word_starts": pa.uint16(),
    "word_ends": pa.uint16(),
    "subword_ids": pa.int32(),
    "subword_starts": pa.uint16(),
    "subword_ends": pa.uint16(),
    "sentence_starts": pa.uint16(),
}


def test_all_columns() -> None:
    whole = schema()
    assert tuple(whole.names) == COLUMNS
    assert whole.metadata == {b"schema_version": b"1"}
    assert SCHEMA_VERSION == 1
    for field in whole:
        assert not field.nullable
        if field.name in ITEMS:
            assert field.type == pa.list_(pa.field("item", ITEMS[field.name], nullable=False))
        else:
            assert field.type == pa.string()


def test_some_columns_come_in_the_order_of_the_contract() -> None:
    assert schema(["text", "document"]).names == ["document", "text"]


def test_unknown_column_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'bytes'"):
        schema(["text", "bytes"])


def test_the_longest_window_has_offsets_that_fit() -> None:
    assert len(("👩" * MAX_WINDOW_CHARACTERS).encode()) < 2**16
