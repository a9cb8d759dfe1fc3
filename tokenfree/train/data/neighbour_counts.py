"""The loss of counts of neighbouring subwords: what a user gets from one pass over the text, without a model.

N targets, V subwords
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tokenfree.train.batches.base import Arrays, Rows
from tokenfree.train.batches.subwords import HIDDEN, neighbours_of
from tokenfree.train.data.shards import ShardReader

_COLUMNS = ("subword_ids", "subword_starts", "subword_ends")
_MAX_SIZE = 64  # characters; longer subwords count as this long
# How much the number of different subwords after a context counts against their number (Witten and Bell 1991).
_WEIGHT = 2


class NeighbourCounts:
    """Witten-Bell estimates of a subword from its length and its neighbours, in `max_rows` windows of `train`.

    p(x | l, r, n) ~ p(x | l, n) p(x | r, n) / p(x | n), normalised over all subwords and interpolated with the counts
    of both neighbours together.
    """

    def __init__(self, train: ShardReader, num_subwords: int, *, max_rows: int = 50_000) -> None:
        self._size = num_subwords
        parts = [_read(rows) for _, rows in train.spread_rows(_COLUMNS, max_rows)]
        ids, left, right, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._frequencies = (np.bincount(ids, minlength=num_subwords) + 0.5) / (len(ids) + 0.5 * num_subwords)
        contexts = (
            sizes,
            *(self._keys(*both, sizes) for both in ((left, HIDDEN), (HIDDEN, right), (left, right))),
        )
        self._counts = [np.unique(context * num_subwords + ids, return_counts=True) for context in contexts]
        self._by_size: dict[int, np.ndarray] = {}

    def losses(
        self, ids_N: np.ndarray, left_N: np.ndarray, right_N: np.ndarray, sizes_N: np.ndarray
    ) -> np.ndarray:
        """Return the loss of each target, float64 nats; a neighbour may be EDGE or HIDDEN."""
        rows = zip(*(values.tolist() for values in (ids_N, left_N, right_N, sizes_N)), strict=True)
        return np.array([-np.log(self._distribution(*row[1:])[row[0]]) for row in rows])

    def _distribution(self, left: int, right: int, size: int) -> np.ndarray:
        size = min(size, _MAX_SIZE)
        if size not in self._by_size:
            self._by_size[size] = self._interpolated(0, size, self._frequencies, weight=1)
        by_size = by_left = by_right = self._by_size[size]
        if left != HIDDEN:
            by_left = self._interpolated(1, self._keys(left, HIDDEN, size), by_size)
        if right != HIDDEN:
            by_right = self._interpolated(2, self._keys(HIDDEN, right, size), by_size)
        both = by_left * by_right / by_size
        both /= both.sum()
        if HIDDEN in (left, right):
            return both
        return self._interpolated(3, self._keys(left, right, size), both)

    def _interpolated(
        self, table: int, context: int, lower_V: np.ndarray, weight: float = _WEIGHT
    ) -> np.ndarray:
        keys, counts = self._counts[table]
        first, last = np.searchsorted(keys, [context * self._size, (context + 1) * self._size])
        if first == last:
            return lower_V
        seen = counts[first:last]
        total = seen.sum() + weight * len(seen)
        mixed_V = lower_V * (weight * len(seen) / total)
        mixed_V[keys[first:last] - context * self._size] += seen / total
        return mixed_V

    def _keys(self, left: np.ndarray | int, right: np.ndarray | int, sizes: np.ndarray | int) -> Any:
        return ((left - HIDDEN) * (self._size - HIDDEN) + right - HIDDEN) * (_MAX_SIZE + 1) + sizes


def _read(rows: Rows) -> tuple[np.ndarray, ...]:
    """Return the subwords of windows, their neighbours and their lengths, int64."""
    ids, starts, ends = (np.concatenate(rows[column]).astype(np.int64) for column in _COLUMNS)
    counts = np.array([len(row) for row in rows["subword_ids"]], dtype=np.int64)
    left, right = neighbours_of(ids, counts)
    return ids, left, right, np.minimum(ends - starts, _MAX_SIZE)


def target_losses(counts: NeighbourCounts, held_out: Iterable[Arrays]) -> np.ndarray:
    """Return the losses of all targets of batches that name the neighbours of targets, in their order."""
    parts = [np.zeros(0)]
    for arrays in held_out:
        real = arrays["target_mask"]
        names = ("target_ids", "target_left", "target_right", "target_sizes")
        parts.append(counts.losses(*(arrays[name][real] for name in names)))
    return np.concatenate(parts)
