"""Merge the documents of key ranges from sorted files, in the order of their keys, without duplicates."""

import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.documents.near_duplicates import as_keys, key_halves, keys_of
from tokenfree.preprocess.records import Document
from tokenfree.preprocess.shards.sorted_runs import INDEX, KEY_SPACE, KeyRange, SortedPart, read_batch

PIECE_BYTES = 32_000_000  # of documents in memory
ROWS_AT_ONCE = 256


class DamagedFileError(JobError):
    """The bytes of a sorted file are not those of its checksums."""


class FilePart(NamedTuple):
    """A part of the sorted file at `path`."""

    path: str
    part: SortedPart


class Request(NamedTuple):
    """Neighbouring batches of a file, with their index, INDEX [batches]."""

    path: str
    batches: np.ndarray


class Merge:
    """An iterator over (key, document) of the positions in the ascending `ranges`.

    Of documents with equal keys, the one with the smallest (language, id) stays. Documents whose key is in
    `dropped_keys` (see `near_duplicates.dropped_keys`) are dropped. Each batch is read once. Memory is
    bounded by `PIECE_BYTES` and one batch of each source, not by the ranges. Iterating raises
    DamagedFileError.
    """

    def __init__(
        self,
        storage: Storage,
        sources: Iterable[FilePart],
        ranges: Sequence[KeyRange] = ((0, KEY_SPACE),),
        dropped_keys: np.ndarray | None = None,
    ) -> None:
        self.storage = storage
        self.sources = tuple(sources)
        self.ranges = ranges
        self.dropped_keys = dropped_keys
        self.duplicates = 0
        self.near_duplicates = 0

    def __iter__(self) -> Iterator[tuple[bytes, Document]]:
        for table in self.tables():
            order = np.flatnonzero(_is_first(table))
            self.duplicates += table.num_rows - len(order)
            if self.dropped_keys is not None and len(self.dropped_keys):
                stays = ~np.isin(keys_of(table["key"])[order], self.dropped_keys)
                self.near_duplicates += len(order) - int(stays.sum())
                order = order[stays]
            for start in range(0, len(order), ROWS_AT_ONCE):
                rows = table.take(pa.array(order[start : start + ROWS_AT_ONCE]))
                columns = (rows[name].to_pylist() for name in ("key", "id", "language", "title", "text"))
                for key, *fields in zip(*columns, strict=True):
                    yield key, Document(*fields)

    def tables(self) -> Iterator[pa.Table]:
        """Yield all documents, also those that are dropped, in the order of (key, language, id), in several tables."""
        for low, high in self.ranges:
            ahead: list[pa.RecordBatch] = []  # rows behind the current piece
            for end, requests in self.pieces(low, high):
                batches = [*ahead, *self._read(requests)]
                rows = [part for batch in batches if (part := _slice(batch, low, end)).num_rows]
                ahead = [part for batch in batches if (part := _slice(batch, end, high)).num_rows]
                if rows:
                    # One chunk, because `take` from several chunks would copy all of them.
                    table = pa.Table.from_batches(rows).combine_chunks()
                    yield table.sort_by([(name, "ascending") for name in ("key", "language", "id")])

    def pieces(self, low: int, high: int) -> Iterator[tuple[int, list[Request]]]:
        """Yield the end of each piece of a range, and what has to be read for it after the previous piece."""
        sources = tuple(source for source in self.sources if source.part.overlaps(low, high))
        index, numbers = read_indexes(self.storage, sources)
        inside = (index["first"][:, 0] < high) & (index["last"][:, 0] >= low)
        index, numbers = index[inside], numbers[inside]
        count = max(1, -(-int((index["end"] - index["start"]).sum()) // PIECE_BYTES))
        ends = [low + (high - low) * (number + 1) // count for number in range(count)]
        order = np.argsort(index["first"][:, 0], kind="stable")
        last_positions = np.array([end - 1 for end in ends], np.uint64)
        stops = np.searchsorted(index["first"][order, 0], last_positions, side="right")
        for end, (start, stop) in zip(ends, itertools.pairwise([0, *stops]), strict=True):
            rows = order[start:stop]
            rows = rows[np.lexsort((index["start"][rows], numbers[rows]))]
            joined = (numbers[rows[1:]] == numbers[rows[:-1]]) & (
                index["start"][rows[1:]] == index["end"][rows[:-1]]
            )
            groups = np.split(rows, np.flatnonzero(~joined) + 1) if len(rows) else []
            yield end, [Request(sources[numbers[group[0]]].path, index[group]) for group in groups]

    def _read(self, requests: list[Request]) -> Iterator[pa.RecordBatch]:
        places = [(path, int(rows["start"][0]), int(rows["end"][-1])) for path, rows in requests]
        for request, data in zip(requests, self.storage.read_ranges(places), strict=True):
            offsets = request.batches["start"] - request.batches["start"][0]
            lengths = request.batches["end"] - request.batches["start"]
            for offset, length, crc32 in zip(
                offsets.tolist(), lengths.tolist(), request.batches["crc32"].tolist(), strict=True
            ):
                batch = data.slice(offset, length)
                _check(self.storage, request.path, batch, crc32)
                yield read_batch(batch)


@functools.lru_cache(maxsize=4)
def read_indexes(storage: Storage, sources: tuple[FilePart, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the batches of all sources, INDEX [batches], and the number of each batch's source.

    Raises DamagedFileError.
    """
    indexes = []
    for source, data in zip(
        sources,
        storage.read_ranges([(path, part.start, part.end) for path, part in sources]),
        strict=True,
    ):
        _check(storage, source.path, data, source.part.crc32)
        indexes.append(np.frombuffer(data, INDEX))
    numbers = np.repeat(np.arange(len(sources)), [len(index) for index in indexes])
    return np.concatenate([np.zeros(0, INDEX), *indexes]), numbers


def occupied(
    storage: Storage,
    sources: Sequence[FilePart],
    ranges: Sequence[KeyRange],
    dropped_keys: np.ndarray | None = None,
) -> np.ndarray:
    """Return for each of the ascending ranges whether it has a document besides `dropped_keys`, bool [ranges].

    Reads an index only if the first and last keys of the sources cannot tell, and documents only if no index
    can.
    """
    lows = np.array([low for low, _ in ranges], np.uint64)
    lasts = np.array([high - 1 for _, high in ranges], np.uint64)
    is_occupied = np.zeros(len(ranges), bool)

    def mark(halves: np.ndarray) -> None:
        if dropped_keys is not None:
            halves = halves[~np.isin(as_keys(halves.astype(">u8").tobytes()), dropped_keys)]
        positions = halves[:, 0]
        rows = np.searchsorted(lows, positions, side="right") - 1
        is_occupied[rows[(rows >= 0) & (positions <= lasts[rows])]] = True

    for _, part in sources:
        mark(np.frombuffer(bytes.fromhex(part.first + part.last), ">u8").reshape(2, 2).astype(np.uint64))
    for source in sorted(sources, key=lambda source: -source.part.documents):
        first, last = source.part.positions
        near = slice(
            np.searchsorted(lasts, np.uint64(first)), np.searchsorted(lows, np.uint64(last), side="right")
        )
        if not is_occupied[near].all():
            index, _ = read_indexes(storage, (source,))
            mark(np.concatenate([index["first"], index["last"]]))
    for row in np.flatnonzero(~is_occupied).tolist():
        is_occupied[row] = any(True for _ in Merge(storage, sources, [ranges[row]], dropped_keys))
    return is_occupied


def _check(storage: Storage, path: str, data: pa.Buffer, crc32: int) -> None:
    if zlib.crc32(data) != crc32:
        raise DamagedFileError(f"{storage.url}/{path}: damaged; run the job again")


def _slice(batch: pa.RecordBatch, low: int, high: int) -> pa.RecordBatch:
    if low >= high:
        return batch.slice(0, 0)
    positions = key_halves(batch["key"])[:, 0]
    start = int(np.searchsorted(positions, np.uint64(low)))
    stop = int(np.searchsorted(positions, np.uint64(high - 1), side="right"))
    return batch.slice(start, stop - start)


def _is_first(table: pa.Table) -> np.ndarray:
    keys = key_halves(table["key"])
    return np.append(True, (keys[1:] != keys[:-1]).any(axis=1))
