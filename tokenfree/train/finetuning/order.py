"""The order of the items of a task: batch number b is a function of (sizes of the items, seed, b) alone.

Items come epoch by epoch, each epoch in a permutation of its own. Some dozens of batches in a row are a pool, whose
items are sorted by size before they are parted into batches, so that little is padded; the batches of a pool come in
an order drawn anew.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from tokenfree.train.batches import counter_random as random

VERSION = 1  # of the rules in this file: a run goes on only under those it began with
POOL = 50  # batches that are sorted together, at most an epoch of them


class SizedOrder:
    """Which items each batch has.

    Args:
        sizes: of all items, at least one.
        batch: items of a batch.
        seed: of the draws.
    """

    def __init__(self, sizes: Sequence[int] | np.ndarray, *, batch: int, seed: int) -> None:
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._batch, self._seed = batch, seed
        self._pool_batches = max(1, min(POOL, len(self._sizes) // batch))
        self._pool = functools.lru_cache(maxsize=4)(self._make_pool)

    def items(self, batch: int) -> np.ndarray:
        """The numbers of the items of a batch, int64 [batch], from small ones to large ones."""
        pool, within = divmod(batch, self._pool_batches)
        return self._pool(pool)[within]

    def _make_pool(self, pool: int) -> np.ndarray:
        """The batches of a pool, in their order: int64 [batches, batch]."""
        count = self._pool_batches * self._batch
        drawn = np.arange(pool * count, (pool + 1) * count, dtype=np.int64)
        size = len(self._sizes)
        epochs = random.derive(random.key(self._seed, "epochs"), drawn // size)
        items = random.permute(drawn % size, np.full(count, size), epochs)
        items = items[np.argsort(self._sizes[items], kind="stable")].reshape(-1, self._batch)
        keys = np.full(len(items), random.key(self._seed, "batches of a pool", pool))
        return items[random.permute(np.arange(len(items)), np.full(len(items), len(items)), keys)]
