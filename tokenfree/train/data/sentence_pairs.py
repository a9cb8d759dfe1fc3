"""Rows to the arrays of a collator; for examples of two parts, with the rows that the second parts may come from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.collator import Arrays, Collator
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.data.shard_reader import ShardReader

_TRIES = 4


def collate(
    reader: ShardReader, collator: Collator, shards: np.ndarray, rows: np.ndarray, sample_ids: np.ndarray
) -> Arrays:
    """The batch of some rows; `shards`, `rows` and `sample_ids` are int64 [b].

    Raises:
        JobError, UserError: a shard cannot be fetched or read, or has not the columns of the collator.
    """
    if isinstance(collator, PairCollator):
        second = second_segments(reader, shards, rows, seed=collator.seed, sample_ids=sample_ids)
        shards, rows = np.concatenate([shards, second[0]]), np.concatenate([rows, second[1]])
    return collator(reader.rows(collator.columns, shards, rows), sample_ids)


def second_segments(
    reader: ShardReader, shards: np.ndarray, rows: np.ndarray, *, seed: int, sample_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The shard and row of another document whose text may be the second part beside each row, int64 [b] each.

    Of four rows of the same shard drawn at random, those of the row's own document left out, it is the one most alike
    in length: of a much shorter one, little would be left of both parts. Shards are in the order of hashes of their
    documents and of one language each, so that a shard is as good as the whole corpus: its documents are any, the
    language gives nothing away, and reads stay where the worker reads. Where the four are all of the row's own
    document, as in a shard with a single one, four more are drawn among all shards of the split in that language; then
    it is the row itself again. So a split with one document in a language has only pairs that belong together.
    """
    found_shards, found_rows = shards.copy(), rows.copy()
    draws = random.uniform(seed, "second segment", sample_ids, 2 * _TRIES)
    for at, places in enumerate(draws):
        shard, row = int(shards[at]), int(rows[at])
        document, size = reader.shard(shard).row("document", row).tobytes(), _size(reader, shard, row)
        near = ((shard, int(place * reader.shards[shard].rows)) for place in places[:_TRIES])
        for drawn in (near, _anywhere(reader, reader.shards[shard].language, places[_TRIES:])):
            others = [each for each in drawn if reader.shard(each[0]).row("document", each[1]).tobytes() != document]
            if others:
                found_shards[at], found_rows[at] = min(others, key=lambda each: abs(_size(reader, *each) - size))
                break
    return found_shards, found_rows


def _size(reader: ShardReader, shard: int, row: int) -> int:
    return reader.shard(shard).size("whitespace", row)


def _anywhere(reader: ShardReader, language: str, places: np.ndarray) -> Iterator[tuple[int, int]]:
    """Shard and row at each of the `places`, in [0, 1), of all rows in a language."""
    shards = [number for number, shard in enumerate(reader.shards) if shard.language == language]
    ends = np.cumsum([reader.shards[shard].rows for shard in shards])
    for place in places:
        number = int(place * ends[-1])
        index = int(np.searchsorted(ends, number, side="right"))
        yield shards[index], number - int(ends[index - 1] if index else 0)
