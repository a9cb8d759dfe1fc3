"""Validation batches: the same windows with the same masks, whatever is trained and on however many workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches.collator import Arrays, Collator
from tokenfree.train.data.loader import slice_of
from tokenfree.train.data.sentence_pairs import collate
from tokenfree.train.data.shard_reader import ShardReader
from tokenfree.train.mixture.mixture import Data

VALIDATION_SEED = 0  # of the masks; the training seed has no say


def validation_batches(
    data: Data,
    *,
    collator: Collator,
    num_windows: int,
    batch: int = 32,
    split: str = "validation",
    rank: int = 0,
    world_size: int = 1,
    together: bool = False,
    check_shards: bool = True,
) -> Iterator[Arrays]:
    """Rank's contiguous slices of batches of `num_windows` windows (or all) spaced evenly over the rows of the split.

    With a `collator` of the seed `VALIDATION_SEED`, a row's masks depend on its number in the split only, not on
    `num_windows` or `batch`. `sample_ids` holds that number. The last batch may be smaller, and the slice of a rank may
    then be empty and is left out; where all ranks must have a batch `together`, the first row of all takes its place,
    and `sample_ids` is empty. Of several directories each has batches of its own, see `ShardReader.spread`.
    `check_shards`: see `ShardReader`.

    Raises:
        UserError: there is no such split, or no window in it.
    """
    reader = ShardReader(data, split, check=check_shards)
    numbers, shards, places = reader.spread(num_windows)
    if not len(numbers):
        raise UserError(f"{data} has no windows in its split {split!r}; preprocess with a larger validation_fraction")
    reader.fetch_ahead(shards)
    edges = [0, *(np.flatnonzero(np.diff(reader.directories_of(shards))) + 1).tolist(), len(numbers)]
    spans = [
        (start, min(start + batch, last)) for first, last in pairwise(edges) for start in range(first, last, batch)
    ]

    def batches() -> Iterator[Arrays]:
        for start, stop in spans:
            begin, end = slice_of(rank, world_size, stop - start)
            chosen = slice(start + begin, start + end)
            if begin < end:
                arrays = collate(reader, collator, shards[chosen], places[chosen], numbers[chosen])
                yield {**arrays, "sample_ids": numbers[chosen]}
            elif together:
                yield {**collate(reader, collator, shards[:1], places[:1], numbers[:1]), "sample_ids": numbers[:0]}

    return batches()
