"""Rows to the arrays of a collator; for examples of two parts, with the rows that the second parts come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from train.data import random
from train.data.reader import Split
from train.objectives.base import Arrays, Collator
from train.objectives.next_sentence import PairCollator

_TRIES = 4
_ELSEWHERE = 0.5  # of the pairs


def collate(split: Split, collator: Collator, shards: np.ndarray, rows: np.ndarray, sample_ids: np.ndarray) -> Arrays:
    """The batch of some rows; `shards`, `rows` and `sample_ids` are int64 [b]."""
    if isinstance(collator, PairCollator):
        second = partners(split, shards, rows, seed=collator.seed, sample_ids=sample_ids)
        shards, rows = np.concatenate([shards, second[0]]), np.concatenate([rows, second[1]])
    return collator(split.rows(collator.columns, shards, rows), sample_ids)


def partners(
    split: Split, shards: np.ndarray, rows: np.ndarray, *, seed: int, sample_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The shard and row whose second part is shown with each row, int64 [b] each.

    In half of the cases the row itself, else a random one of another document of the same shard. Shards are in the
    order of hashes of their documents and of one language each, so that a shard is as good as the whole corpus: its
    documents are any, the language gives nothing away, and reads stay where the worker reads. Where four draws find
    none, as in a shard with a single document, four more are made among all shards of the split in that language; then
    it is the row itself again. So a split with one document in a language has only pairs that belong together.
    """
    found_shards, found_rows = shards.copy(), rows.copy()
    elsewhere = np.flatnonzero(random.uniform(seed, "next sentence", sample_ids, 1)[:, 0] < _ELSEWHERE)
    draws = random.uniform(seed, "partner", sample_ids[elsewhere], 2 * _TRIES)
    for at, places in zip(elsewhere.tolist(), draws, strict=True):
        own = int(shards[at])
        document = split.shard(own).row("document", int(rows[at])).tobytes()
        near = ((own, int(place * split.shards[own].rows)) for place in places[:_TRIES])
        for shard, row in itertools.chain(near, _anywhere(split, split.shards[own].language, places[_TRIES:])):
            if split.shard(shard).row("document", row).tobytes() != document:
                found_shards[at], found_rows[at] = shard, row
                break
    return found_shards, found_rows


def _anywhere(split: Split, language: str, places: np.ndarray) -> Iterator[tuple[int, int]]:
    """Shard and row at each of the `places`, in [0, 1), of all rows in a language."""
    shards = [number for number, shard in enumerate(split.shards) if shard.language == language]
    ends = np.cumsum([split.shards[shard].rows for shard in shards])
    for place in places:
        number = int(place * ends[-1])
        index = int(np.searchsorted(ends, number, side="right"))
        yield shards[index], number - int(ends[index - 1] if index else 0)
