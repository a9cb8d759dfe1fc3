"""The texts of an earlier job's pages, found by the hash of the page."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.arrow_tables import read_columns
from tokenfree.preprocess.job.preprocess_job import RUNS
from tokenfree.preprocess.job.reuse.kept import find_kept
from tokenfree.preprocess.near_duplicates.gone import as_keys, keys_of
from tokenfree.preprocess.records.document import document_key
from tokenfree.preprocess.shards.sorted_runs import SortedRun, is_file_whole, is_whole, load_run, read_batch

PAGES = ".pages.arrow"
OPEN_RUNS = 8  # pages of a dump stand in an order that hardly changes, so few runs are looked into at a time


@functools.lru_cache(maxsize=1)
def known_pages(url: str, reading: str) -> Callable[[bytes], str | None] | None:
    """What finds the text of a page by its hash in the finished directory `url`; None if its runs were made in another
    way than one whose fingerprint is `reading`. Kept for the splits to come of this process; 36 bytes a page."""
    storage = Storage(url)
    kept = find_kept(storage)
    return None if kept is None or kept.reading != reading else KnownPages(storage).find


class KnownPages:
    """All pages of the kept runs of a directory."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._runs = [name.removesuffix(PAGES) for name in storage.names(RUNS) if name.endswith(PAGES)]
        pages, keys, runs = [as_keys(b"")], [as_keys(b"")], [np.zeros(0, np.int32)]
        for number, run in enumerate(self._runs):
            known = load_run(storage, RUNS, run)
            if known is None or not is_file_whole(storage, RUNS, known, PAGES):
                continue
            table = read_columns(storage, f"{RUNS}/{run}{PAGES}", ["page", "key"])
            pages.append(keys_of(table["page"]))
            keys.append(keys_of(table["key"]))
            runs.append(np.full(table.num_rows, number, np.int32))
        found = np.concatenate(pages)
        order = np.argsort(found, kind="stable")
        self._pages, self._keys = found[order], np.concatenate(keys)[order]
        self._run_of = np.concatenate(runs)[order]
        self._texts = functools.lru_cache(maxsize=OPEN_RUNS)(self._texts_of)

    def find(self, digest: bytes) -> str | None:
        """The text of the page with this hash, None where it is not known, or what is kept of it is damaged."""
        place = int(np.searchsorted(self._pages, digest))
        if place == len(self._pages) or self._pages[place] != digest.rstrip(b"\0"):
            return None
        key = bytes(self._keys[place]).ljust(16, b"\0")
        text = self._texts(int(self._run_of[place]))(key)
        return text if text is not None and document_key(text) == key else None

    def _texts_of(self, number: int) -> Callable[[bytes], str | None]:
        run = load_run(self._storage, RUNS, self._runs[number])
        if run is None or not is_whole(self._storage, RUNS, run):
            return lambda _: None
        return _RunTexts(self._storage, run).find


class _RunTexts:
    """The texts of one run by their keys; its file is mapped, and not read. One of a store is fetched to a disk."""

    def __init__(self, storage: Storage, run: SortedRun) -> None:
        ranges = [(batch.run, batch.start, batch.end) for batch in run.file.batches]
        with contextlib.nullcontext(storage) if storage.is_local else _fetched(storage, ranges) as here:
            self._batches = [read_batch(buffer) for buffer in here.read_ranges(ranges)]
        places = sorted(
            (key, number, row)
            for number, batch in enumerate(self._batches)
            for row, key in enumerate(batch["key"].to_pylist())
        )
        self._keys = [key for key, _, _ in places]
        self._places = [(number, row) for _, number, row in places]

    def find(self, key: bytes) -> str | None:
        place = bisect_left(self._keys, key)
        if place == len(self._keys) or self._keys[place] != key:
            return None
        number, row = self._places[place]
        return self._batches[number]["text"][row].as_py()


@contextlib.contextmanager
def _fetched(storage: Storage, ranges: Iterable[tuple[str, int, int]]) -> Iterator[Storage]:
    """A folder of this machine with the files of the ranges; what is mapped stays when it is gone."""
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
        for name in {name for name, _, _ in ranges}:
            os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
            storage.get(name, f"{folder}/{name}")
        yield Storage(folder)
