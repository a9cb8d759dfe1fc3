"""Merge the documents of key ranges from all runs, in the order of their keys, without duplicates."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenfree.core.storage import Storage
from tokenfree.preprocess.documents.near_duplicates import as_keys, key_halves, keys_of
from tokenfree.preprocess.records import Document
from tokenfree.preprocess.shards.sorted_runs import (
    KEY_SPACE,
    KeyRange,
    SortedRunBatch,
    key_position,
    read_batch,
)

PIECE_CHARACTERS = 16_000_000  # characters of text in memory
# Batches read at a time; only their rows in range are kept.
FETCHED_BATCHES = 64
ROWS_AT_ONCE = 256


class Merge:
    """An iterator over (key, document) of the positions in the ascending `ranges`.

    Of documents with equal keys, the one with the smallest (language, id) stays. Documents whose key is in
    `dropped_keys` (see `dropped_keys`) are dropped. Memory is bounded by `PIECE_CHARACTERS`, not by the
    ranges.
    """

    def __init__(
        self,
        storage: Storage,
        batches: Iterable[SortedRunBatch],
        ranges: Sequence[KeyRange] = ((0, KEY_SPACE),),
        dropped_keys: np.ndarray | None = None,
    ) -> None:
        self.storage = storage
        self.batches = list(batches)
        self.ranges = ranges
        self.gone = dropped_keys
        self.duplicates = 0
        self.near_duplicates = 0

    def __iter__(self) -> Iterator[tuple[bytes, Document]]:
        for low, high in self.ranges:
            near = [batch for batch in self.batches if overlaps(batch, low, high)]
            share = sum(batch.characters * _share(batch, low, high) for batch in near)
            pieces = max(1, -(-int(share) // PIECE_CHARACTERS))
            bounds = [low + (high - low) * i // pieces for i in range(pieces + 1)]
            for start, end in itertools.pairwise(bounds):
                yield from self._piece(near, start, end)

    def _piece(self, batches: list[SortedRunBatch], low: int, high: int) -> Iterator[tuple[bytes, Document]]:
        table = self._read(batches, low, high)
        if table is None:
            return
        order = _order(table)
        self.duplicates += table.num_rows - len(order)
        if self.gone is not None and len(self.gone):
            stays = ~np.isin(keys_of(table["key"])[order], self.gone)
            self.near_duplicates += len(order) - int(stays.sum())
            order = order[stays]
        for start in range(0, len(order), ROWS_AT_ONCE):
            rows = table.take(pa.array(order[start : start + ROWS_AT_ONCE]))
            columns = (rows[name].to_pylist() for name in ("key", "id", "language", "title", "text"))
            for key, *fields in zip(*columns, strict=True):
                yield key, Document(*fields)

    def _read(self, batches: list[SortedRunBatch], low: int, high: int) -> pa.Table | None:
        overlapping = [batch for batch in batches if overlaps(batch, low, high)]
        tables = []
        for start in range(0, len(overlapping), FETCHED_BATCHES):
            chunk = overlapping[start : start + FETCHED_BATCHES]
            buffers = self.storage.read_ranges([(batch.run, batch.start, batch.end) for batch in chunk])
            slices = [_slice(read_batch(buffer), low, high) for buffer in buffers]
            # The copy releases the rows out of range: a shard needs only a small part of each batch.
            tables.append(pa.Table.from_batches(slices).combine_chunks())
        if not any(table.num_rows for table in tables):
            return None
        # One chunk, because each `take` from several chunks would copy all of them.
        return pa.concat_tables(tables).combine_chunks()


def overlaps(batch: SortedRunBatch, low: int, high: int) -> bool:
    """Return True if keys of the batch may lie in the range."""
    first, last = _bounds(batch)
    return first < high and last >= low


def contains_document(
    storage: Storage,
    batches: Sequence[SortedRunBatch],
    ranges: Sequence[KeyRange],
    dropped_keys: np.ndarray | None = None,
) -> bool:
    """Return True if any document except those `dropped_keys` lies in the ranges.

    Reads data only if sidecars cannot tell.
    """
    keys = {bytes.fromhex(key) for batch in batches for key in (batch.first, batch.last)}
    if dropped_keys is not None and keys:
        sorted_keys = sorted(keys)
        keys = {
            key
            for key, out in zip(
                sorted_keys, np.isin(as_keys(b"".join(sorted_keys)), dropped_keys), strict=True
            )
            if not out
        }
    ends = {key_position(key) for key in keys}
    if any(low <= end < high for low, high in ranges for end in ends):
        return True
    return any(True for _ in Merge(storage, batches, ranges, dropped_keys))


def _share(batch: SortedRunBatch, low: int, high: int) -> float:
    first, last = _bounds(batch)
    inside = min(last, high - 1) - max(first, low) + 1
    return inside / (last - first + 1)


def _bounds(batch: SortedRunBatch) -> tuple[int, int]:
    return int(batch.first[:16], 16), int(batch.last[:16], 16)


def _slice(batch: pa.RecordBatch, low: int, high: int) -> pa.RecordBatch:
    positions = key_halves(batch["key"])[:, 0]
    start = int(np.searchsorted(positions, np.uint64(low)))
    stop = int(np.searchsorted(positions, np.uint64(high - 1), side="right"))
    return batch.slice(start, stop - start)


def _order(table: pa.Table) -> np.ndarray:
    """Return rows in the order of their keys; of equal keys, only the row with the smallest (language, id)."""
    names = [(name, "ascending") for name in ("key", "language", "id")]
    order = pc.sort_indices(table, names).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
    keys = key_halves(table["key"])[order]
    return order[np.append(True, (keys[1:] != keys[:-1]).any(axis=1))]
