"""The batches of a task's items for one worker: its contiguous slice of each global batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.data.loader import batch_of, slice_of
from tokenfree.train.data.prefetch import Prefetcher
from tokenfree.train.finetuning.order import VERSION, SizedOrder
from tokenfree.train.tasks.base import Item, TaskCollator


class ItemLoader:
    """See `tokenfree.train.loop.source.StepLoader`.

    Args:
        items: to train on, at least one.
        collator: that makes arrays of them.
        content: fingerprint of the files.
        global_batch: items of a step, of all workers.
        length: the most positions of an input.
        seed: of the order.
        rank, world_size: this worker among all.
    """

    def __init__(
        self,
        items: Sequence[Item],
        collator: TaskCollator,
        *,
        content: str,
        global_batch: int,
        length: int,
        seed: int,
        rank: int,
        world_size: int,
    ) -> None:
        self._items, self._collator, self._batch = items, collator, global_batch
        self._order = SizedOrder([item.size for item in items], batch=global_batch, seed=seed)
        self._begin, self._end = slice_of(rank, world_size, global_batch)
        self.fingerprint: dict[str, str | int | float] = {
            "data": content,
            "seed": seed,
            "global_batch": global_batch,
            "length": length,
            "items": len(items),
            "order": VERSION,
        }

    def batch(self, step: int) -> Arrays:
        """The arrays of this worker's slice of global batch `step`, and `sample_ids` int64 [b], counted over steps."""
        ids = np.arange(step * self._batch + self._begin, step * self._batch + self._end, dtype=np.int64)
        chosen = [self._items[number] for number in self._order.items(step)[self._begin : self._end].tolist()]
        return {**self._collator(chosen, ids), "sample_ids": ids}

    def batches(self, start: int, stop: int | None = None, *, left_out: Collection[int] = ()) -> Prefetcher[Arrays]:
        """See `StepLoader.batches`."""
        return Prefetcher(lambda step: self.batch(batch_of(step, left_out)), start, stop)

    def check(self, saved: Mapping[str, str | int | float], source: str) -> None:
        """See `StepLoader.check`.

        Raises:
            UserError: `source` (a checkpoint) was saved under another fingerprint than this one.
        """
        differing = [name for name, value in self.fingerprint.items() if saved.get(name) != value]
        if differing:
            shown = ", ".join(f"{name} {saved.get(name)!r}, now {self.fingerprint[name]!r}" for name in differing)
            raise UserError(
                f"{source} was trained on other examples ({shown}); give it the files and settings it began with, or "
                "start a new run in another directory"
            )
