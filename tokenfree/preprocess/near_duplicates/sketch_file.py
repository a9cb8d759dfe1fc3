"""The sketches of a sorted run, in a file beside it: an Arrow file of one batch, of which each reader takes columns.

| column | of each document |
|---|---|
| `language`, `key`, `id` | as in the run |
| `band_00` ... | uint64: equal in two documents that are candidates, see `pairs` |
| `sketch` | 256 numbers of two bytes |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.arrow_tables import write_table
from tokenfree.preprocess.near_duplicates.sketch import NUM_HASHES, band_hashes, sketch
from tokenfree.preprocess.records.document import KEY_BYTES, Document

KEY = pa.binary(KEY_BYTES)
_SKETCH = pa.binary(2 * NUM_HASHES)


def write_sketches(
    storage: Storage, name: str, documents: Iterable[tuple[bytes, Document]], shingle_characters: int, rows: int
) -> str:
    """Commit the sketches of documents, given with their keys, in bands of `rows` numbers; the SHA-256 of the file.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    languages, keys, ids, sketches = [], [], [], []
    for key, document in documents:
        languages.append(document.language)
        keys.append(key)
        ids.append(document.id)
        sketches.append(sketch(document.text, shingle_characters))
    values = np.stack(sketches).astype("<u2") if sketches else np.zeros((0, NUM_HASHES), "<u2")
    columns: dict[str, Any] = {"language": pa.array(languages, pa.string()), "key": pa.array(keys, KEY)}
    columns["id"] = pa.array(ids, pa.string())
    columns |= {band_name(number): pa.array(band) for number, band in enumerate(band_hashes(values, rows).T)}
    columns["sketch"] = pa.array([row.tobytes() for row in values], _SKETCH)
    return write_table(storage, name, pa.table(columns))


def band_name(number: int) -> str:
    """The name of the column of a band."""
    return f"band_{number:02}"


def numbers_of(column: pa.ChunkedArray) -> np.ndarray:
    """The sketches of the column `sketch`, uint16 [documents, 256]."""
    found = [np.frombuffer(value.as_py(), "<u2") for value in column]
    return np.stack(found) if found else np.zeros((0, NUM_HASHES), "<u2")
