"""Characters as targets, and the words that they form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenfree.train.batches.collator import Rows, Symbols
from tokenfree.train.batches.framing import ragged_range


def words(whitespace: Sequence[np.ndarray], longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The runs without white space of each row: how many, int64 [b]; starts and ends, int64 [sum] over all rows.

    A run of more than `longest` characters is cut into as few as need be, all of that length but the last.
    """
    sizes = np.array([len(row) for row in whitespace], dtype=np.int64)
    heads = np.cumsum(sizes + 1) - sizes  # where each row begins when every one has white space in front
    white = np.ones(int((sizes + 1).sum()) + 1, dtype=np.bool_)
    for row, head in zip(whitespace, heads.tolist(), strict=True):
        white[head : head + len(row)] = row
    changes = np.flatnonzero(white[1:] != white[:-1]) + 1
    starts, ends = changes[::2], changes[1::2]
    parts = (ends - starts + longest - 1) // longest
    if len(parts) and parts.max() > 1:
        numbers = ragged_range(np.zeros_like(parts), parts)
        starts = np.repeat(starts, parts) + longest * numbers
        ends = np.minimum(np.repeat(ends, parts), starts + longest)
    of = np.searchsorted(heads, starts, side="right") - 1
    return np.bincount(of, minlength=len(sizes)), starts - heads[of], ends - heads[of]


def character_symbols(buckets: int) -> Symbols:
    """The buckets (codepoints modulo their number) of all characters but white space as targets."""

    def ids(rows: Rows) -> np.ndarray:
        codepoints, white = (np.concatenate(rows[column]) for column in ("codepoints", "whitespace"))
        return codepoints[~white].astype(np.int64) % buckets

    return Symbols("character", ("codepoints", "whitespace"), np.ones(buckets, dtype=bool), ids)
