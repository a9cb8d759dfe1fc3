"""Rows to the arrays of a collator; for examples of two parts, with the rows that the second parts come from."""

from __future__ import annotations

import numpy as np

from train.data import random
from train.data.reader import Split
from train.objectives.base import Arrays, Collator
from train.objectives.next_sentence import PairCollator

_TRIES = 4
_ELSEWHERE = 0.5  # of the pairs


def collate(split: Split, collator: Collator, shards: np.ndarray, rows: np.ndarray, sample_ids: np.ndarray) -> Arrays:
    """The batch of some rows; `shards`, `rows` and `sample_ids` are int64 [b]."""
    places = rows
    if isinstance(collator, PairCollator):
        places = np.concatenate([rows, partners(split, shards, rows, seed=collator.seed, sample_ids=sample_ids)])
        shards = np.concatenate([shards, shards])
    return collator(split.rows(collator.columns, shards, places), sample_ids)


def partners(split: Split, shards: np.ndarray, rows: np.ndarray, *, seed: int, sample_ids: np.ndarray) -> np.ndarray:
    """The row of the same shard whose second part is shown with each row, int64 [b].

    In half of the cases the row itself, else a random one of another document; the row itself again where four draws
    find none. Shards are in the order of hashes of their documents and of one language each, so that a shard is as good
    as the whole corpus: its documents are any, the language gives nothing away, and reads stay where the worker reads.
    """
    found = rows.copy()
    elsewhere = np.flatnonzero(random.uniform(seed, "next sentence", sample_ids, 1)[:, 0] < _ELSEWHERE)
    sizes = np.array([split.shards[shard].rows for shard in shards[elsewhere].tolist()], dtype=np.int64)
    draws = random.uniform(seed, "partner", sample_ids[elsewhere], _TRIES) * sizes[:, None]
    for at, candidates in zip(elsewhere.tolist(), draws.astype(np.int64).tolist(), strict=True):
        shard = split.shard(int(shards[at]))
        document = shard.row("document", int(rows[at])).tobytes()
        others = (row for row in candidates if shard.row("document", row).tobytes() != document)
        found[at] = next(others, rows[at])
    return found
