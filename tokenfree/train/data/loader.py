"""Batches by step: this worker's contiguous slice of the global batch, the same on any number of workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches.collator import Arrays, Collator
from tokenfree.train.data.order import VERSION, Order, Places
from tokenfree.train.data.prefetch import Prefetcher
from tokenfree.train.data.sentence_pairs import collate
from tokenfree.train.data.shard_reader import ShardReader
from tokenfree.train.mixture.mixture import Data

_PLANNED = 4096  # samples placed at once: 1 to 2 us each with 104 languages, against 25 in a batch of 32 alone

_RULE = "rule of "  # in a fingerprint: before the name of a rule, which has changed so often

Fingerprint = dict[str, "str | int | float"]


def slice_of(rank: int, world_size: int, size: int) -> tuple[int, int]:
    """First and last + 1 of the contiguous part of range(size) that is `rank`'s; parts differ by at most one."""
    return rank * size // world_size, (rank + 1) * size // world_size


def batch_of(step: int, left_out: Collection[int]) -> int:
    """The number of the batch that `step` trains on: the steps take all batches in turn but those `left_out`."""
    batch = step
    for number in sorted(left_out):
        batch += number <= batch
    return batch


class Loader:
    """The batches of one worker. Files are opened when first read; the only state of training is the step.

    Args:
        data: a data directory, or several.
        split: which part of it, such as "train".
        global_batch: examples of a step, of all workers.
        seed, smoothing, streams: see `Order`.
        collator: rows to arrays.
        rules: how the rules by which the run is trained have changed, by the name of the rule, the oldest change first.
        rank, world_size: this worker among all.
        check_shards: see `ShardReader`.

    Raises:
        UserError: split absent or empty, streams do not divide the batch, or there are more workers than samples.
    """

    fingerprint: Fingerprint  # what decides the batches and what is made of them; saved with checkpoints, see `check`

    def __init__(
        self,
        data: Data,
        *,
        split: str = "train",
        global_batch: int,
        seed: int,
        smoothing: float,
        streams: int,
        collator: Collator,
        rules: Mapping[str, Sequence[str]] | None = None,
        rank: int = 0,
        world_size: int = 1,
        check_shards: bool = True,
    ) -> None:
        if world_size > global_batch:
            raise UserError(
                f"train.global_batch: {global_batch} examples cannot be shared by {world_size} workers; use at most "
                f"{global_batch} workers or a larger batch"
            )
        self._reader = ShardReader(data, split, check=check_shards)
        self._order = Order(
            self._reader.shards,
            seed=seed,
            smoothing=smoothing,
            streams=streams,
            global_batch=global_batch,
            mixing=self._reader.mixing,
        )
        self._collator = collator
        self._batch = global_batch
        self._begin, self._end = slice_of(rank, world_size, global_batch)
        self._ahead = max(1, _PLANNED // (self._end - self._begin))  # steps placed at once
        self._plan: tuple[int, np.ndarray, Places] | None = None
        self.fingerprint = {
            "data": self._reader.manifest.fingerprint,
            "split": split,
            "seed": seed,
            "smoothing": smoothing,
            "streams": streams,
            "global_batch": global_batch,
            "length": collator.length,
            "order": VERSION,
        }
        self._rules = {_RULE + name: changes for name, changes in (rules or {}).items()}
        self.fingerprint |= {name: len(changes) for name, changes in self._rules.items()}

    def batch(self, step: int) -> Arrays:
        """The arrays of the collator for this worker's slice of global batch `step`, and `sample_ids` int64 [b].

        Raises:
            JobError, UserError: a shard cannot be fetched or read, or has not the columns of the collator.
        """
        first, ids, places = self._planned(step)
        chosen = step - first
        arrays = collate(self._reader, self._collator, places.shard[chosen], places.row[chosen], ids[chosen])
        return {**arrays, "sample_ids": ids[chosen]}

    def batches(
        self, start: int, stop: int | None = None, *, left_out: Collection[int] = (), depth: int = 2
    ) -> Prefetcher[Arrays]:
        """Batches of steps start, start + 1, ..., made ahead by a thread. Use with `with`; `.seconds_waited`.

        Step s has the batch `batch_of(s, left_out)`.
        """
        return Prefetcher(lambda step: self.batch(batch_of(step, left_out)), start, stop, depth=depth)

    def check(self, saved: Mapping[str, str | int | float], source: str) -> None:
        """Refuse to go on with a run that read other data, read it in another order or was trained by other rules.

        Raises:
            UserError: `source` (a checkpoint) was saved under another fingerprint than this one.
        """
        differing = [name for name, value in self.fingerprint.items() if saved.get(name, 0) != value]
        if differing and differing == [name for name in differing if name in self._rules]:
            changes = (self._rules[name][int(saved.get(name, 0)) :] or ["it is newer"] for name in differing)
            shown = "; ".join(f"{name}: {', '.join(of)}" for name, of in zip(differing, changes, strict=True))
            raise UserError(
                f"{source} was trained by rules that have changed since ({shown}); start a new run in another "
                "directory (evaluate, export and report still read this one)"
            )
        if differing:
            shown = ", ".join(f"{name} {saved.get(name)!r}, now {self.fingerprint[name]!r}" for name in differing)
            raise UserError(
                f"{source} was trained on other samples ({shown}); give it the data and settings it began with, or "
                "start a new run in another directory"
            )

    def _planned(self, step: int) -> tuple[int, np.ndarray, Places]:
        """The steps placed together with `step`: the first of them, their sample ids [steps, b] and places."""
        first = step // self._ahead * self._ahead
        plan = self._plan
        if plan is None or plan[0] != first:  # one assignment, so that a second thread sees a whole plan
            plan = self._plan = self._place(first)
            if self._reader.is_prepared:
                self._reader.fetch_ahead(plan[2].shard, self._place(first + self._ahead)[2].shard)
        return plan

    def _place(self, first: int) -> tuple[int, np.ndarray, Places]:
        steps = np.arange(first, first + self._ahead, dtype=np.int64)
        ids = steps[:, None] * self._batch + np.arange(self._begin, self._end, dtype=np.int64)
        places = self._order.locate(ids.reshape(-1))
        return first, ids, Places(*(part.reshape(ids.shape) for part in places))
