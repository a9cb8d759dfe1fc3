"""A thousand workers, ids only: order, cache and recovery with the real loader, on 125 machines that share a store."""

import dataclasses
import functools
import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import DatasetSplit, ShardEntry, load_manifest, save_manifest
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays, Collator, Rows
from tokenfree.train.data import loader
from tokenfree.train.data import shards as shard_cache
from tokenfree.train.data import shards as shard_reader
from tokenfree.train.data.loader import Loader
from tokenfree.train.data.order import Order

WORKERS, ON_A_MACHINE, BATCH = 1000, 8, 2000
EPOCH = 2  # steps: each of the 1,000 streams has four rows, and two samples of every step
URL = "memory://thousand"
# Rows of the shards: streams begin and end within them.
SIZES = [size for _ in range(20) for size in (31, 57, 45, 67)]
PLANNED = 8  # samples placed at once; 4,096, as in a run, would be 1,000 epochs of so few rows


class Ids(Collator):
    """A collator of nothing but which row it is, and a draw by the sample's number as masks are drawn."""

    columns = ("codepoints",)
    length = 8

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        draws = random.uniform(3, "mask", sample_ids, 1)[:, 0]
        return {"row": np.array([row[0] for row in rows["codepoints"]]), "draw": draws}


@pytest.fixture(scope="module")
def store(data: str) -> Iterator[str]:
    """A data directory in a store, whose row number n says n."""
    memory, entries, first = fsspec.filesystem("memory"), [], 0
    for index, size in enumerate(SIZES):
        rows = pa.array([[first + row] for row in range(size)], pa.list_(pa.int32()))
        sink = pa.BufferOutputStream()
        batch = pa.record_batch({"codepoints": rows})
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content, path = sink.getvalue().to_pybytes(), f"train/data-{index:05d}-of-{len(SIZES):05d}.arrow"
        memory.pipe(f"/thousand/{path}", content)
        sha256 = hashlib.sha256(content).hexdigest()
        entries.append(ShardEntry(path, "en", size, size, 100 * size, len(content), sha256))
        first += size
    assert first == BATCH * EPOCH
    save_manifest(
        Storage.at(URL),
        dataclasses.replace(load_manifest(data), splits={"train": DatasetSplit(tuple(entries))}),
    )
    yield URL
    memory.rm("/thousand", recursive=True)


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each worker reads and reckons for itself, alike on all, is done once here; it takes a minute for all."""
    orders = functools.cache(lambda **settings: Order(load_manifest(URL).splits["train"].shards, **settings))
    monkeypatch.setattr(loader, "Order", lambda shards, **settings: orders(**settings))
    monkeypatch.setattr(shard_reader, "load_manifest", functools.cache(load_manifest))


def make_loader(store: str, rank: int = 0, world_size: int = 1) -> Loader:
    return Loader(
        store,
        global_batch=BATCH,
        seed=11,
        smoothing=0.7,
        streams=WORKERS,
        collator=Ids(),
        rank=rank,
        world_size=world_size,
    )


def global_batches(store: str, world_size: int, start: int, stop: int) -> Iterator[Arrays]:
    """The batches of the steps, put together from the slices of freshly started workers."""
    workers = [make_loader(store, rank, world_size) for rank in range(world_size)]
    for step in range(start, stop):
        parts = [worker.batch(step) for worker in workers]
        yield {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(loader, "_PLANNED", PLANNED)
    monkeypatch.setenv("TOKENFREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def wait_for_fetchers() -> None:
    """Until no loader looks ahead any more: all of them take the cache from the environment."""
    for thread in threading.enumerate():
        if thread.name == "fetch-ahead":
            thread.join(timeout=30)
            assert not thread.is_alive()


@pytest.mark.usefixtures("cache")
def test_samples_are_those_of_one_worker_and_go_on_after_restarts_with_other_numbers(store: str) -> None:
    """Two epochs and a half: 1,000 workers, of whom 360 are lost, and all again."""
    alone = make_loader(store)
    batches: list[Arrays] = []
    for world_size, start, stop in ((WORKERS, 0, 1), (640, 1, 3), (WORKERS, 3, 5)):
        make_loader(store, world_size - 1, world_size).check(alone.fingerprint, "a checkpoint of one worker")
        batches += global_batches(store, world_size, start, stop)
    for step, batch in enumerate(batches):
        for name, array in alone.batch(step).items():
            np.testing.assert_array_equal(batch[name], array)
    for epoch in (0, 1):
        of_epoch = batches[epoch * EPOCH : (epoch + 1) * EPOCH]
        ids = np.concatenate([batch["sample_ids"] for batch in of_epoch])
        np.testing.assert_array_equal(ids, np.arange(BATCH * EPOCH) + epoch * BATCH * EPOCH)
        rows = np.concatenate([batch["row"] for batch in of_epoch])
        np.testing.assert_array_equal(np.sort(rows), np.arange(BATCH * EPOCH))  # each exactly once
    assert not np.array_equal(batches[0]["row"], batches[EPOCH]["row"])  # in another order in the next epoch
    wait_for_fetchers()


@pytest.mark.usefixtures("cache")
def test_machines_fetch_and_workers_open_each_of_their_shards_once(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: Counter[tuple[int, str]] = Counter()
    opened: Counter[str] = Counter()
    machine = 0
    download, open_shard = shard_cache._download, shard_reader.open_shard

    def count_download(system: fsspec.AbstractFileSystem, name: str, path: Path, sha256: str) -> None:
        fetched[machine, Path(name).name] += 1
        download(system, name, path, sha256)

    def count_open(path: str, *, num_bytes: int, sha256: str, check: bool = True) -> shard_reader.Shard:
        opened[Path(path).name] += 1
        return open_shard(path, num_bytes=num_bytes, sha256=sha256, check=check)

    monkeypatch.setattr(shard_cache, "_download", count_download)
    monkeypatch.setattr(shard_reader, "open_shard", count_open)
    for machine in range(WORKERS // ON_A_MACHINE):
        monkeypatch.setenv("TOKENFREE_CACHE", str(tmp_path / f"machine-{machine}"))
        first = machine * ON_A_MACHINE
        for rank in range(first, first + ON_A_MACHINE):
            opened.clear()
            worker = make_loader(store, rank, WORKERS)
            for step in range(2 * EPOCH):
                worker.batch(step)
            assert dict(opened) == dict.fromkeys(shards_of(rank, rank + 1), 1)
            assert len(opened) <= 2  # a worker's rows follow one another, and shards have more
        wait_for_fetchers()
        assert {name for at, name in fetched if at == machine} == shards_of(first, first + ON_A_MACHINE)
    assert set(fetched.values()) == {1}
    # Each machine reads its own part of the corpus: all fetch the corpus once, and one shard more for each
    # border.
    assert len(fetched) <= len(SIZES) + WORKERS // ON_A_MACHINE


def test_one_worker_for_all_streams_keeps_as_many_shards_open_as_it_may(
    store: str, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(shard_reader, "MAX_OPEN", 50)
    alone = make_loader(store)
    for step in range(2):
        alone.batch(step)
        assert len(alone.reader._open) == 50
    wait_for_fetchers()
    assert len(list(cache.glob("*.arrow"))) == len(SIZES)


def shards_of(first: int, last: int) -> set[str]:
    """The names of the shards with the rows of the workers from `first` to before `last`."""
    rows = np.arange(first * BATCH * EPOCH // WORKERS, last * BATCH * EPOCH // WORKERS)
    indices = np.searchsorted(np.cumsum(SIZES), rows, side="right")
    return {f"data-{index:05d}-of-{len(SIZES):05d}.arrow" for index in indices}
