"""The documents of a key range, in order, out of the slices of all runs: sorted by key, equal neighbours dropped."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from preprocess.document import KEY_BYTES, Document
from preprocess.runs import KEY_SPACE, RunBatch, position, read_batch
from preprocess.storage import Storage

PIECE_CHARACTERS = 16_000_000  # of text held at once
FETCHED_BATCHES = 64  # at a time: only the rows in range are kept of them
ROWS_AT_ONCE = 256


class Merge:
    """Iterate over (key, document) of keys with `low <= position < high`; `duplicates` counts what was dropped.

    Of documents with equal keys the one with the smallest (language, id) stays. Memory is bounded by
    `PIECE_CHARACTERS`, not by the range. With `only`, no other key (hex) is read; that of `without` is passed over.
    """

    def __init__(
        self,
        storage: Storage,
        batches: Iterable[RunBatch],
        low: int = 0,
        high: int = KEY_SPACE,
        *,
        only: str | None = None,
        without: str | None = None,
    ) -> None:
        self.storage = storage
        self.batches = [batch for batch in batches if overlaps(batch, low, high)]
        self.low, self.high = low, high
        self.only, self.without = only, without
        self.duplicates = 0

    def __iter__(self) -> Iterator[tuple[bytes, Document]]:
        share = sum(batch.characters * self._share(batch) for batch in self.batches)
        pieces = max(1, -(-int(share) // PIECE_CHARACTERS))
        bounds = [self.low + (self.high - self.low) * i // pieces for i in range(pieces + 1)]
        for low, high in itertools.pairwise(bounds):
            table = self._read(low, high)
            if table is None:
                continue
            order = _order(table)
            self.duplicates += table.num_rows - len(order)
            for start in range(0, len(order), ROWS_AT_ONCE):
                rows = table.take(pa.array(order[start : start + ROWS_AT_ONCE]))
                columns = (rows[name].to_pylist() for name in ("key", "id", "language", "title", "text"))
                for key, *fields in zip(*columns, strict=True):
                    yield key, Document(*fields)

    def _share(self, batch: RunBatch) -> float:
        """About which part of the batch lies in the range."""
        first, last = _bounds(batch)
        inside = min(last, self.high - 1) - max(first, self.low) + 1
        return inside / (last - first + 1)

    def _read(self, low: int, high: int) -> pa.Table | None:
        wanted = [batch for batch in self.batches if overlaps(batch, low, high)]
        tables = []
        for start in range(0, len(wanted), FETCHED_BATCHES):
            chunk = wanted[start : start + FETCHED_BATCHES]
            buffers = self.storage.read_ranges([(batch.run, batch.start, batch.end) for batch in chunk])
            slices = [self._choose(_slice(read_batch(buffer), low, high)) for buffer in buffers]
            # The copy lets go of the rows out of range; a run gives a shard only a small part of its batches.
            tables.append(pa.Table.from_batches(slices).combine_chunks())
        table = pa.concat_tables(tables) if tables else None
        return table if table is not None and table.num_rows else None

    def _choose(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.only is None and self.without is None:
            return batch
        keys = [key.hex() for key in batch["key"].to_pylist()]
        return batch.filter(pa.array([key != self.without and self.only in (None, key) for key in keys], pa.bool_()))


def overlaps(batch: RunBatch, low: int, high: int) -> bool:
    """Whether keys of the batch may lie in the range."""
    first, last = _bounds(batch)
    return first < high and last >= low


def contains_document(
    storage: Storage, batches: Sequence[RunBatch], low: int, high: int, without: str | None = None
) -> bool:
    """Whether any document but that of the key `without` lies in the range; reads only where sidecars leave it open."""
    near = [batch for batch in batches if overlaps(batch, low, high)]
    ends = {key for batch in near for key in (batch.first, batch.last)} - {without}
    if any(low <= position(bytes.fromhex(key)) < high for key in ends):
        return True
    return any(True for _ in Merge(storage, near, low, high, without=without))


def _bounds(batch: RunBatch) -> tuple[int, int]:
    return int(batch.first[:16], 16), int(batch.last[:16], 16)


def _slice(batch: pa.RecordBatch, low: int, high: int) -> pa.RecordBatch:
    positions = _halves(batch["key"])[:, 0]
    start = int(np.searchsorted(positions, np.uint64(low)))
    stop = int(np.searchsorted(positions, np.uint64(high - 1), side="right"))
    return batch.slice(start, stop - start)


def _halves(keys: pa.Array) -> np.ndarray:
    """[rows, 2] uint64: the first and last eight bytes of each key, whose order is that of the keys."""
    start = keys.offset * KEY_BYTES
    data = np.frombuffer(keys.buffers()[1], np.uint8)[start : start + len(keys) * KEY_BYTES]
    return data.view(">u8").reshape(-1, 2).astype(np.uint64)


def _order(table: pa.Table) -> np.ndarray:
    """Rows in the order of their keys; of equal keys only the row with the smallest (language, id)."""
    keys = np.concatenate([_halves(chunk) for chunk in table["key"].chunks])
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(fresh)
    kept = order[starts]
    ends = np.append(starts[1:], len(order))
    for place in np.flatnonzero(ends - starts > 1):
        rows = order[starts[place] : ends[place]]
        kept[place] = min(rows, key=lambda row: (table["language"][row].as_py(), table["id"][row].as_py(), row))
    return kept
