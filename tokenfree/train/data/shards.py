"""Data directories, and the rows of their Arrow shards as NumPy views.

Remote shards are fetched into a cache of bounded size: the folder TOKENFREE_CACHE (default ~/.cache/tokenfree),
with shards of up to TOKENFREE_CACHE_GB (default 50). All workers of a machine share it. Files are named by their
hash and appear by renaming, and one worker at a time fetches a shard.
"""

import bisect
import collections
import contextlib
import dataclasses
import errno
import functools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath, absolute_path, cache_folder, expand_home, hash_file, lock
from tokenfree.core.storage import Storage, retry
from tokenfree.preprocess.dataset.manifest import Manifest, ShardEntry, load_manifest, load_vocabulary
from tokenfree.preprocess.features.columns import character_column
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import readable_columns
from tokenfree.preprocess.text.characters import codepoints_of
from tokenfree.train.data.mixture import Data, Mixing, Mixture, mixed_contents, parse
from tokenfree.train.data.order import quotas_of

_ACTION = "run `tokenfree verify` on the data directory, and preprocess again what is broken"
ATTEMPTS = 5  # to fetch a remote shard
PAUSE = 1.0  # seconds after the first failed attempt; doubled after each


def fetch(system: AbstractFileSystem, name: str, *, num_bytes: int, sha256: str) -> str:
    path = cache_folder() / f"{sha256}.arrow"
    cache_folder().mkdir(parents=True, exist_ok=True)
    with lock(path.with_suffix(".lock")):
        # Another worker may have fetched it in the meantime.
        if not path.exists():
            _evict(int(float(os.environ.get("TOKENFREE_CACHE_GB", "50")) * 1e9) - num_bytes)
            _download(system, name, path, sha256)
        # Another worker may just have removed it to make room.
        with contextlib.suppress(FileNotFoundError):
            # The most recently used shard is removed last.
            os.utime(path)
    return str(path)


def _download(system: AbstractFileSystem, name: str, path: Path, sha256: str) -> None:
    temporary = path.with_suffix(".partial")
    try:
        retry(lambda: system.get_file(name, str(temporary)), again=_may_pass, pause=PAUSE, attempts=ATTEMPTS)
        digest = hash_file(temporary)
    except FileNotFoundError as error:
        raise JobError(f"{name}, which the manifest names, is absent; {_ACTION}") from error
    except Exception as error:  # fsspec's file systems raise errors of many libraries
        if _may_pass(error):
            raise JobError(f"{name} cannot be fetched: {error}; try again when the store is back") from error
        raise UserError(
            f"{cache_folder()}: no room for {name}; free space, lower TOKENFREE_CACHE_GB, or set TOKENFREE_CACHE to "
            "a folder on a larger disk"
        ) from error
    else:
        if digest != sha256:
            raise JobError(f"{name} has SHA-256 {digest}, its manifest says {sha256}; {_ACTION}")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _may_pass(error: Exception) -> bool:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return not full and not isinstance(error, FileNotFoundError)


def _evict(limit: int) -> None:
    files = []
    for path in cache_folder().glob("*.arrow"):
        # Another worker has removed it.
        with contextlib.suppress(FileNotFoundError):
            files.append((path.stat(), path))
    total = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda entry: entry[0].st_mtime):
        if total > limit:
            path.unlink(missing_ok=True)
            total -= status.st_size


@functools.cache
def _hash(path: str, num_bytes: int, modified_ns: int, changed_ns: int) -> str:
    """Return the SHA-256 of a local file.

    The other arguments make it read again when the file has changed.
    """
    return hash_file(path)


_AT_ONCE = 1000  # rows
# Mapped shards, which hold no file descriptor.
MAX_OPEN = 1024


class _Column(NamedTuple):
    offsets: np.ndarray  # int32 [rows + 1], into `values`
    values: np.ndarray  # concatenated items of all rows; UTF-8 bytes of strings, packed bits of booleans
    packed: bool

    def row(self, index: int) -> np.ndarray:
        begin, end = self.offsets[index : index + 2].tolist()
        if not self.packed:
            return self.values[begin:end]
        whole = np.unpackbits(self.values[begin // 8 : -(-end // 8)], bitorder="little")
        return whole[begin % 8 : begin % 8 + end - begin].view(np.bool_)

    def size(self, index: int) -> int:
        return int(self.offsets[index + 1] - self.offsets[index])


class _CharacterColumn(NamedTuple):
    """A column that the shard lacks and that follows from its text."""

    name: str
    text: _Column

    def row(self, index: int) -> np.ndarray:
        return character_column(self.name, codepoints_of(str(self.text.row(index).data, "utf-8")))

    def size(self, index: int) -> int:
        return len(self.row(index))


class Shard:
    """An open shard.

    Its arrays are views of the mapped file, so nothing is copied, or read before its use.
    """

    def __init__(self, table: pa.Table, path: str, local: str) -> None:
        self.path, self.local = path, local
        self.num_rows = table.num_rows
        self._batches = table.to_batches()
        self._starts = [0, *np.cumsum([batch.num_rows for batch in self._batches]).tolist()]
        self._columns: dict[tuple[int, str], _Column | _CharacterColumn] = {}

    def row(self, column: str, index: int) -> np.ndarray:
        """Return the items of a list column in a row, in the column's type, or the UTF-8 bytes (uint8) of a string.

        Columns of characters that the shard lacks are computed from its text.
        """
        view, at = self._place(column, index)
        return view.row(at)

    def size(self, column: str, index: int) -> int:
        view, at = self._place(column, index)
        return view.size(at)

    def columns(self) -> list[str]:
        return readable_columns(self._batches[0].schema.names) if self._batches else []

    def _place(self, column: str, index: int) -> tuple[_Column | _CharacterColumn, int]:
        batch = bisect.bisect_right(self._starts, index) - 1
        view = self._columns.get((batch, column))
        if view is None:
            view = self._columns[batch, column] = self._view(batch, column)
        return view, index - self._starts[batch]

    def _view(self, batch: int, column: str) -> _Column | _CharacterColumn:
        if column not in self.columns():
            raise UserError(
                f"{self.path} has no column {column!r} (it has {', '.join(self.columns())}); preprocess again with it "
                "in `columns`, or choose an objective that does not need it"
            )
        rows = self._batches[batch]
        if column not in rows.schema.names:
            return _CharacterColumn(column, _stored_column(rows.column("text")))
        return _stored_column(rows.column(column))


def _stored_column(array: pa.Array) -> _Column:
    if pa.types.is_string(array.type):
        _, offsets, values = array.buffers()
        return _Column(
            np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1],
            np.frombuffer(values or b"", np.uint8),
            packed=False,
        )
    assert isinstance(array, pa.ListArray), array.type
    # to_numpy would import pandas.
    offsets = np.from_dlpack(array.offsets)
    if pa.types.is_boolean(array.values.type):
        return _Column(offsets, np.frombuffer(array.values.buffers()[1] or b"", np.uint8), packed=True)
    return _Column(offsets, np.from_dlpack(array.values), packed=False)


def local_file(path: str, *, num_bytes: int, sha256: str, check: bool = True) -> str:
    """Return the local path of the shard at `path`, which is fetched.

    Raises JobError if a local file is damaged.
    """
    system, name = url_to_fs(path)
    if not isinstance(system, LocalFileSystem):
        return fetch(system, name, num_bytes=num_bytes, sha256=sha256)
    status = os.stat(name)
    # `open_shard` reports another size.
    is_whole = status.st_size == num_bytes
    if check and is_whole and _hash(name, num_bytes, status.st_mtime_ns, status.st_ctime_ns) != sha256:
        raise JobError(f"{path} is damaged, its SHA-256 is not that of its manifest; {_ACTION}")
    return name


def open_shard(path: str, *, num_bytes: int, sha256: str, check: bool = True) -> Shard:
    """Map the shard at `path`, which is fetched if remote.

    Raises JobError if it is missing, damaged or invalid.
    """
    try:
        local = local_file(path, num_bytes=num_bytes, sha256=sha256, check=check)
        size = os.path.getsize(local)
        if size != num_bytes:
            raise JobError(f"{path} has {size} bytes, its manifest says {num_bytes}; {_ACTION}")
        with pa.memory_map(local) as source, pa.ipc.open_stream(source) as stream:
            # The buffers keep the mapping alive after the file is closed.
            return Shard(stream.read_all(), path, local)
    except (OSError, pa.ArrowInvalid) as error:
        raise JobError(f"{path} cannot be read ({error}); {_ACTION}") from error


def as_data(data: Data | AnyPath | Sequence[AnyPath]) -> Data:
    if isinstance(data, Mixture):
        return dataclasses.replace(data, paths=tuple(map(expand_home, data.paths)))
    return expand_home(data) if isinstance(data, str | os.PathLike) else parse(data, "data")


def absolute(data: Data) -> Data:
    if isinstance(data, Mixture):
        return dataclasses.replace(data, paths=tuple(map(absolute_path, data.paths)))
    return absolute_path(data)


def paths_of(data: Data) -> tuple[str, ...]:
    return data.paths if isinstance(data, Mixture) else (data,)


def load_contents(data: Data) -> tuple[Manifest, Mapping[str, Mixing] | None]:
    return mixed_contents(data) if isinstance(data, Mixture) else (load_manifest(data), None)


def load_data_manifest(data: Data) -> Manifest:
    return load_contents(data)[0]


def load_data_vocabulary(data: Data) -> Vocabulary | None:
    """Return the subword vocabulary of `data`, or None if there is none.

    Several directories have the same one.
    """
    return load_vocabulary(paths_of(data)[0])


class ShardReader:
    """The shards of one split of one or several data directories, in order.

    Raises UserError if there is no such split. With `check`, the hash of a local shard is checked before its
    first use.
    """

    def __init__(self, data: Data, name: str, *, check: bool = True) -> None:
        self.manifest, mixing = load_contents(data)
        if name not in self.manifest.splits:
            names = ", ".join(self.manifest.splits)
            raise UserError(
                f"{data} has no split {name!r} (it has {names}); preprocess with validation_fraction above 0"
            )
        self.shards: Sequence[ShardEntry] = self.manifest.splits[name].shards
        self.mixing = None if mixing is None else mixing[name]
        self._open: collections.OrderedDict[int, Shard] = collections.OrderedDict()
        self._paths = [path.rstrip("/") for path in paths_of(data)]
        self._remote = not all(Storage.at(path).is_local for path in paths_of(data))
        self._check = check
        # Shards to fetch ahead.
        self._wanted: list[int] = []
        # By shard, and the number of rows.
        self._first_rows = np.cumsum([0, *(shard.rows for shard in self.shards)])

    def shard(self, index: int) -> Shard:
        """Return an open shard; at most `MAX_OPEN` are.

        Raises JobError if the manifest has another number of rows.
        """
        shard = self._open.get(index)
        if shard is None:
            entry = self.shards[index]
            path = self._path(index)
            shard = open_shard(path, num_bytes=entry.bytes, sha256=entry.sha256, check=self._check)
            if shard.num_rows != entry.rows:
                raise JobError(f"{path} has {shard.num_rows} rows, its manifest says {entry.rows}; {_ACTION}")
            if self._remote:
                self._close_removed()
            self._open[index] = shard
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(index)
        return shard

    def fetch_ahead(self, *shards: np.ndarray) -> None:
        """Fetch these remote shards, or check these local ones, in the background.

        This replaces earlier requests.
        """
        if self.is_prepared:
            self._wanted = list(
                dict.fromkeys(number for part in shards for number in part.reshape(-1).tolist())
            )
            threading.Thread(
                target=self._fetch, args=(self._wanted,), name="fetch-ahead", daemon=True
            ).start()

    def rows(
        self, columns: Sequence[str], shards: np.ndarray, rows: np.ndarray
    ) -> dict[str, list[np.ndarray]]:
        """Return the arrays of some rows by column, n of each. `shards` and `rows` are int64 [n]."""
        places = [(self.shard(shard), row) for shard, row in zip(shards.tolist(), rows.tolist(), strict=True)]
        return {column: [shard.row(column, row) for shard, row in places] for column in columns}

    def spread_rows(
        self, columns: Sequence[str], num_windows: int
    ) -> Iterator[tuple[np.ndarray, dict[str, list[np.ndarray]]]]:
        """Yield shards, int64, and arrays by column of evenly spaced rows (see `spread`), a thousand at once."""
        _, shards, rows = self.spread(num_windows)
        for start in range(0, len(rows), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            yield shards[some], self.rows(columns, shards[some], rows[some])

    def directories_of(self, shards: np.ndarray) -> np.ndarray:
        """Return the number of the directory of each shard, int64 [n]; 0 for a single directory."""
        return (
            np.zeros_like(shards)
            if self.mixing is None
            else np.array(self.mixing.of_shard, dtype=np.int64)[shards]
        )

    @property
    def is_prepared(self) -> bool:
        return self._remote or self._check

    def _path(self, index: int) -> str:
        directory = 0 if self.mixing is None else self.mixing.of_shard[index]
        return f"{self._paths[directory]}/{self.shards[index].path}"

    def _fetch(self, numbers: list[int]) -> None:
        for number in numbers:
            if numbers is not self._wanted:
                return
            entry = self.shards[number]
            # A later use raises it again.
            with contextlib.suppress(Exception):
                local_file(self._path(number), num_bytes=entry.bytes, sha256=entry.sha256, check=self._check)

    def _close_removed(self) -> None:
        """Close shards that were removed from the cache. Their disk space is freed only then."""
        for index in [index for index, shard in self._open.items() if not os.path.exists(shard.local)]:
            del self._open[index]

    def spread(self, num_windows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return number in the split, shard and row of at most `num_windows` evenly spaced rows, int64 [n] each.

        With several directories, each has its share of them, at least one if it has any rows.
        """
        if self.mixing is None:
            numbers = _evenly(0, int(self._first_rows[-1]), num_windows)
        else:
            ends = self._first_rows[
                np.searchsorted(self.mixing.of_shard, range(len(self.mixing.weights) + 1))
            ].tolist()
            shares = np.where(np.diff(ends) > 0, self.mixing.shares, 0)
            filled = np.flatnonzero(shares)
            quotas = quotas_of(shares[filled] / shares.sum(), max(num_windows, len(filled))).tolist()
            parts = (
                _evenly(ends[k], ends[k + 1], quota) for k, quota in zip(filled.tolist(), quotas, strict=True)
            )
            numbers = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        shards = self.shards_of(numbers)
        return numbers, shards, numbers - self._first_rows[shards]

    def shards_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the shard of each row, given by its number in the split, int64 [n]."""
        return np.searchsorted(self._first_rows, numbers, side="right") - 1


def _evenly(begin: int, end: int, max_rows: int) -> np.ndarray:
    count = min(max_rows, end - begin)
    return begin + np.arange(count, dtype=np.int64) * (end - begin) // max(count, 1)
