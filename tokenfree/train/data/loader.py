"""Batches by step: this worker's slice of the global batch.

Global batches are the same for any number of workers.
"""

import collections
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays, Collator
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.order import VERSION, Order, Places
from tokenfree.train.data.shards import ShardReader, as_data

T = TypeVar("T")


@contextlib.contextmanager
def prefetched(
    make: Callable[[int], T], start: int, stop: int | None = None, *, depth: int = 3
) -> Iterator[Iterator[T]]:
    """Yield an iterator over make(start), make(start + 1), ..., which a thread computes up to `depth` items ahead."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    numbers = itertools.count(start) if stop is None else iter(range(start, stop))

    def items() -> Iterator[T]:
        pending = collections.deque(pool.submit(make, number) for number in itertools.islice(numbers, depth))
        while pending:
            pending.extend(pool.submit(make, number) for number in itertools.islice(numbers, 1))
            yield pending.popleft().result()

    try:
        yield items()
    finally:
        pool.shutdown(cancel_futures=True)


_TRIES = 4


def collate(
    reader: ShardReader, collator: Collator, shards: np.ndarray, rows: np.ndarray, sample_ids: np.ndarray
) -> Arrays:
    if isinstance(collator, PairCollator):
        second = second_segments(reader, shards, rows, seed=collator.seed, sample_ids=sample_ids)
        shards, rows = np.concatenate([shards, second[0]]), np.concatenate([rows, second[1]])
    return collator(reader.rows(collator.columns, shards, rows), sample_ids)


def second_segments(
    reader: ShardReader, shards: np.ndarray, rows: np.ndarray, *, seed: int, sample_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shard and row of a segment from another document for each row, int64 [b] each.

    Of four random rows of the same shard, the one from another document that is closest in length is chosen.
    If there is none, four are drawn from all shards of that language. If this fails, too, the row itself is
    returned.
    """
    second_shards, second_rows = shards.copy(), rows.copy()
    for at, places in enumerate(random.uniform(seed, "second segment", sample_ids, 2 * _TRIES)):
        shard, row = int(shards[at]), int(rows[at])
        document, size = reader.shard(shard).row("document", row).tobytes(), _size(reader, shard, row)
        near = ((shard, int(place * reader.shards[shard].rows)) for place in places[:_TRIES])
        for drawn in (near, _rows_of_language(reader, reader.shards[shard].language, places[_TRIES:])):
            others = [
                candidate
                for candidate in drawn
                if reader.shard(candidate[0]).row("document", candidate[1]).tobytes() != document
            ]
            if others:
                second_shards[at], second_rows[at] = min(
                    others, key=lambda candidate: abs(_size(reader, *candidate) - size)
                )
                break
    return second_shards, second_rows


def _size(reader: ShardReader, shard: int, row: int) -> int:
    return reader.shard(shard).size("whitespace", row)


def _rows_of_language(reader: ShardReader, language: str, places: np.ndarray) -> Iterator[tuple[int, int]]:
    shards = [number for number, shard in enumerate(reader.shards) if shard.language == language]
    ends = np.cumsum([reader.shards[shard].rows for shard in shards])
    for place in places:
        number = int(place * ends[-1])
        index = int(np.searchsorted(ends, number, side="right"))
        yield shards[index], number - int(ends[index - 1] if index else 0)


_PLANNED = 4096  # samples located at once: 1 to 2 us each with 104 languages, or 25 us in batches of 32

Fingerprint = dict[str, "str | int | float"]


def slice_of(rank: int, world_size: int, size: int) -> tuple[int, int]:
    """Return first and last + 1 of `rank`'s contiguous part of range(size).

    Parts differ in size by at most one.
    """
    return rank * size // world_size, (rank + 1) * size // world_size


def batch_of(step: int, left_out: Collection[int]) -> int:
    """Return the number of the batch of `step`.

    Steps use all batches in order, except those in `left_out`.
    """
    batch = step
    for number in sorted(left_out):
        batch += number <= batch
    return batch


class StepLoader(ABC):
    """The batches of one worker. Batch number b is a pure function of the data and the settings."""

    # Decides the batches and what is made of them; saved with checkpoints for `check`.
    fingerprint: Fingerprint

    @abstractmethod
    def batch(self, step: int) -> Arrays:
        """Return this worker's slice of a global batch, with `sample_ids` and `num_characters`, int64 [b]."""

    def batches(
        self, start: int, stop: int | None = None, *, left_out: Collection[int] = ()
    ) -> contextlib.AbstractContextManager[Iterator[Arrays]]:
        """Return a context with an iterator over the batches of steps start, start + 1, ..., computed ahead."""
        return prefetched(lambda step: self.batch(batch_of(step, left_out)), start, stop)

    def check(self, saved: Mapping[str, str | int | float], source: str) -> None:
        """Check that a run can resume from the checkpoint `source`.

        Raises UserError if its fingerprint differs.
        """
        differing = [name for name, value in self.fingerprint.items() if saved.get(name, 0) != value]
        if differing:
            text = ", ".join(
                f"{name} {saved.get(name)!r}, now {self.fingerprint[name]!r}" for name in differing
            )
            raise UserError(
                f"{source} was trained on other samples ({text}). Give it the data and settings it "
                "began with, or start a new run in another directory"
            )


class Loader(StepLoader):
    """The batches of one worker. The step is the only state.

    Raises UserError if workers outnumber the examples of a batch.
    """

    def __init__(
        self,
        data: Data,
        *,
        global_batch: int,
        seed: int,
        smoothing: float,
        streams: int,
        collator: Collator,
        rank: int = 0,
        world_size: int = 1,
        check_shards: bool = True,
    ) -> None:
        if world_size > global_batch:
            raise UserError(
                f"train.global_batch={global_batch} is smaller than the number of workers: {world_size}. Increase it."
            )
        self.reader = ShardReader(data, "train", check=check_shards)
        self._order = Order(
            self.reader.shards,
            seed=seed,
            smoothing=smoothing,
            streams=streams,
            global_batch=global_batch,
            mixing=self.reader.mixing,
        )
        self._collator = collator
        self._batch = global_batch
        self._begin, self._end = slice_of(rank, world_size, global_batch)
        # Steps located at once.
        self._ahead = max(1, _PLANNED // (self._end - self._begin))
        self._plan: tuple[int, np.ndarray, Places] | None = None
        self.fingerprint = {
            "data": self.reader.manifest.fingerprint,
            "split": "train",
            "seed": seed,
            "smoothing": smoothing,
            "streams": streams,
            "global_batch": global_batch,
            "length": collator.length,
            "order": VERSION,
        }

    def batch(self, step: int) -> Arrays:
        first, ids, places = self._planned(step)
        chosen = step - first
        arrays = collate(self.reader, self._collator, places.shard[chosen], places.row[chosen], ids[chosen])
        return {**arrays, "sample_ids": ids[chosen]}

    def _planned(self, step: int) -> tuple[int, np.ndarray, Places]:
        """Return the steps located together with `step`: the first step, their sample ids [steps, b] and places."""
        first = step // self._ahead * self._ahead
        plan = self._plan
        # One assignment, so that another thread never sees half a plan.
        if plan is None or plan[0] != first:
            plan = self._plan = self._place(first)
            if self.reader.is_prepared:
                self.reader.fetch_ahead(plan[2].shard, self._place(first + self._ahead)[2].shard)
        return plan

    def _place(self, first: int) -> tuple[int, np.ndarray, Places]:
        steps = np.arange(first, first + self._ahead, dtype=np.int64)
        ids = steps[:, None] * self._batch + np.arange(self._begin, self._end, dtype=np.int64)
        places = self._order.locate(ids.reshape(-1))
        return first, ids, Places(*(part.reshape(ids.shape) for part in places))


_STRINGS = ("document", "language", "text")
_AT_ONCE = 1024


def load_windows(
    data: Data | AnyPath | Sequence[AnyPath],
    split: str = "train",
    *,
    seed: int = 0,
    smoothing: float = 0.7,
    streams: int = 4,
    global_batch: int = 32,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows that a run with these `train.` settings uses as samples start, start + 1, ..., stop - 1.

    `stop` is the number of rows of the split by default. Samples continue without end, epoch after epoch.
    With smoothing below 1, rare languages repeat more often, so these samples do not include each row once. A
    row is a dict of its columns: str for document, language and text, and read-only NumPy arrays for the
    others.

    Raises UserError if `data` is not a data directory, or has no such split.
    """
    reader = ShardReader(as_data(data), split)
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
            yield {
                name: bytes(array).decode() if name in _STRINGS else array for name, array in arrays.items()
            }
