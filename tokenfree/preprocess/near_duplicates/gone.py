"""The file of what goes: language and key of each near-duplicate that is dropped, read by every shard of a job."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.arrow_tables import read_columns, write_table
from tokenfree.preprocess.near_duplicates.pairs import Pair
from tokenfree.preprocess.near_duplicates.sketch_file import KEY
from tokenfree.preprocess.records.document import KEY_BYTES


def write_gone(storage: Storage, name: str, gone: Sequence[Pair]) -> str:
    """Commit the upper documents of these pairs, which are sorted; the SHA-256 of the file.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    columns = {"language": [pair.language for pair in gone], "key": [pair.upper for pair in gone]}
    return write_table(storage, name, pa.table(columns, pa.schema([("language", pa.string()), ("key", KEY)])))


def gone_keys(storage: Storage, name: str, language: str) -> np.ndarray:
    """The keys of the documents of a language that go, sorted, bytes [documents].

    `name` is to tell of the content, as what was read once is kept.
    """
    return _gone_keys(storage.url, name).get(language, np.zeros(0, f"S{KEY_BYTES}"))


@functools.lru_cache(maxsize=1)
def _gone_keys(url: str, name: str) -> dict[str, np.ndarray]:
    table = read_columns(Storage(url), name, ["language", "key"])
    languages = np.array(table["language"].to_pylist(), dtype=object)
    keys = keys_of(table["key"])
    return {language: keys[languages == language] for language in set(languages.tolist())}


def keys_of(column: pa.ChunkedArray) -> np.ndarray:
    """The keys of a column, see `as_keys`."""
    found: list[Any] = column.to_pylist()
    return as_keys(b"".join(found))


def as_keys(data: bytes) -> np.ndarray:
    """Keys that lie one after the other, as NumPy compares and sorts them; NULs at their ends do no harm, as all are
    of one length."""
    return np.frombuffer(data, f"S{KEY_BYTES}")
