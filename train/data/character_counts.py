"""The characters of a data directory by frequency, for embedders that have a vocabulary of characters."""

from __future__ import annotations

import numpy as np

from train.data.reader import Split
from train.embedders.character_vocabulary import VocabularyTable
from train.model import Encoder

_AT_ONCE = 1000


def learn_characters(encoder: Encoder, data: str) -> None:
    """Let an encoder with a vocabulary of characters take it from the training split of `data`.

    Every start of a run counts again and finds the same; a checkpoint that is loaded afterwards brings its own.
    """
    table = getattr(encoder.embedder, "table", None)
    if isinstance(table, VocabularyTable):
        table.learn(frequent_characters(data))


def frequent_characters(data: str, *, max_rows: int = 50_000) -> np.ndarray:
    """All codepoints of the training split, the most frequent first, the lower of equals first: int64.

    A larger split is counted at `max_rows` windows, spaced evenly over it.
    """
    split = Split(data, "train")
    _, shards, rows = split.spread(max_rows)
    counts = np.zeros(0x110000, dtype=np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        windows = split.rows(("codepoints",), shards[some], rows[some])["codepoints"]
        counts += np.bincount(np.concatenate(windows), minlength=len(counts))
    found = np.flatnonzero(counts)
    return found[np.argsort(-counts[found], kind="stable")]
