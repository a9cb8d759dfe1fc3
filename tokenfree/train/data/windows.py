"""The windows of a data directory in training order, for looking at and for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tokenfree.train.data.order import Order
from tokenfree.train.data.shard_reader import ShardReader
from tokenfree.train.mixture.mixture import Data, given_or_parsed

_STRINGS = ("document", "language", "text")
_AT_ONCE = 1024


def load_windows(
    data: Data | Sequence[str],
    split: str = "train",
    *,
    seed: int = 0,
    smoothing: float = 0.7,
    streams: int = 4,
    global_batch: int = 32,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows that a run with these `train.` settings sees as samples start, start + 1, ..., stop - 1.

    `data` is a data directory, or several: ["A:0.7", "B:0.3"], see `tokenfree pretrain --help`.
    `stop` is the number of rows of the split by default; samples go on for ever, epoch after epoch. With smoothing
    below 1 rare languages come round more often than common ones, so that this many samples are not each row once.
    A row is a dict of its columns: str for document, language and text, read-only NumPy arrays for the others.

    Raises:
        UserError: `data` is no data directory, or has no such split.

    Examples:
        >>> for window in load_windows("data", stop=3):  # doctest: +SKIP
        ...     print(window["language"], window["text"][:60])
    """
    reader = ShardReader(given_or_parsed(data), split)
    order = Order(
        reader.shards,
        seed=seed,
        smoothing=smoothing,
        streams=streams,
        global_batch=global_batch,
        mixing=reader.mixing,
    )
    stop = sum(shard.rows for shard in reader.shards) if stop is None else stop
    for first in range(start, stop, _AT_ONCE):
        places = order.locate(np.arange(first, min(first + _AT_ONCE, stop), dtype=np.int64))
        for index, row in zip(places.shard.tolist(), places.row.tolist(), strict=True):
            shard = reader.shard(index)
            arrays = {column: shard.row(column, row) for column in shard.columns()}
            yield {name: bytes(array).decode() if name in _STRINGS else array for name, array in arrays.items()}
