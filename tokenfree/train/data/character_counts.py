"""The characters of a data directory by frequency, for embedders that have a vocabulary of characters."""

from __future__ import annotations

import numpy as np

from tokenfree.train.data.shard_reader import ShardReader
from tokenfree.train.mixture.mixture import Data

_AT_ONCE = 1000


def frequent_characters(data: Data, *, max_rows: int = 50_000, check_shards: bool = True) -> np.ndarray:
    """All codepoints of the training split, the most frequent first, the lower of equals first: int64.

    A larger split is counted at `max_rows` windows, spaced evenly over it. `check_shards`: see `ShardReader`.

    Raises:
        UserError: the directory has no training split, or not the column `codepoints`.
    """
    reader = ShardReader(data, "train", check=check_shards)
    _, shards, rows = reader.spread(max_rows)
    counts = np.zeros(0x110000, dtype=np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        windows = reader.rows(("codepoints",), shards[some], rows[some])["codepoints"]
        counts += np.bincount(np.concatenate(windows), minlength=len(counts))
    found = np.flatnonzero(counts)
    return found[np.argsort(-counts[found], kind="stable")]
