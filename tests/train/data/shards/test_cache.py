"""Shards of a store on this machine: fetched ahead, shared by workers, bounded, and checked."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.train.fork_server import fork
from tokenfree.core.errors import JobError, UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data import shards as cache
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.pretrain import pretrain

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.fixture
def store(data_with_shards: str, bucket: str) -> str:
    """A data directory of eight shards in a bucket."""
    fsspec.filesystem("s3").put(data_with_shards + "/", f"{bucket}/data/", recursive=True)
    return f"{bucket}/data"


@pytest.fixture(scope="module")
def data_with_shards(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The corpus, with eight shards (of the same rows) in its split for training."""
    folder = Path(shutil.copytree(corpus, tmp_path_factory.mktemp("data") / "data"))
    manifest = json.loads((folder / "manifest.json").read_text())
    (entry,) = manifest["splits"]["train"]["shards"]
    content = (folder / entry["path"]).read_bytes()
    shards = []
    for number in range(8):
        content += b"\0"  # after the end of the stream; so that hashes differ
        path = f"train/data-{number:05d}-of-00008.arrow"
        (folder / path).write_bytes(content)
        shards.append(
            {**entry, "path": path, "bytes": len(content), "sha256": cache.hash_file(str(folder / path))}
        )
    manifest["splits"]["train"]["shards"] = shards
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


def cached(tmp_path: Path) -> set[str]:
    return {path.stem for path in (tmp_path / "cache").glob("*.arrow")}


def test_a_run_reads_its_data_from_the_store(
    data_with_shards: str,
    store: str,
    make_recipe: MakeRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = pretrain(make_recipe(), data_with_shards, str(tmp_path / "here"))
    size = ShardReader(store, "train").shards[0].bytes
    monkeypatch.setenv("TOKENFREE_CACHE_GB", str(3.5 * size / 1e9))
    there = pretrain(make_recipe(), store, str(tmp_path / "there"))
    assert (there.loss, there.validation_loss) == (here.loss, here.validation_loss)
    assert 0 < len(cached(tmp_path)) <= 4
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_shards_are_fetched_ahead_in_their_order(store: str, tmp_path: Path) -> None:
    split = ShardReader(store, "train")
    split.fetch_ahead(np.array([[3, 3], [1, 3]]), np.array([6]))
    wanted = {split.shards[number].sha256 for number in (3, 1, 6)}
    until = time.monotonic() + 30
    while cached(tmp_path) != wanted:
        assert time.monotonic() < until
        time.sleep(0.01)
    fsspec.filesystem("s3").rm(f"{store}/{split.shards[6].path}")
    assert split.shard(6).num_rows == split.shards[6].rows


def test_a_removed_shard_is_let_go(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = ShardReader(store, "train")
    monkeypatch.setenv("TOKENFREE_CACHE_GB", str(2.5 * split.shards[0].bytes / 1e9))
    row = split.shard(0).row("codepoints", 3)
    kept = row.tolist()
    for number in range(1, 6):
        split.shard(number)
    mapped = {line.split("/")[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    assert f"{split.shards[2].sha256}.arrow (deleted)" not in mapped
    assert row.tolist() == kept
    assert cached(tmp_path) == {split.shards[4].sha256, split.shards[5].sha256}


def test_workers_of_a_machine_fetch_a_shard_once(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of which older versions of fsspec have an instance per thread.
    system = fsspec.get_filesystem_class("s3")
    get, fetched = system._get_file, []

    async def slow(self: Any, name: str, target: str, **options: Any) -> Any:
        fetched.append(name)
        await asyncio.sleep(0.3)
        return await get(self, name, target, **options)

    monkeypatch.setattr(system, "_get_file", slow)
    system.clear_instance_cache()
    threads = [threading.Thread(target=lambda: ShardReader(store, "train").shard(2)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [name.rsplit("/", 1)[-1] for name in fetched] == ["data-00002-of-00008.arrow"]


def test_another_content_is_named(store: str, tmp_path: Path) -> None:
    split = ShardReader(store, "train")
    path = f"{store}/{split.shards[5].path}"
    content = bytearray(fsspec.filesystem("s3").cat_file(path))
    content[len(content) // 2] ^= 1
    fsspec.filesystem("s3").pipe_file(path, bytes(content))
    with pytest.raises(
        JobError, match=r"data-00005-of-00008\.arrow has SHA-256 .*, its manifest says .*verify"
    ):
        split.shard(5)
    fsspec.filesystem("s3").rm(path)
    with pytest.raises(JobError, match=r"data-00005-of-00008\.arrow, which the manifest names, is absent"):
        split.shard(5)
    assert cached(tmp_path) == set()


def test_a_store_that_fails_now_and_then(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.filesystem("s3")
    get, calls = fs.get_file, []

    def failing(name: str, target: str, **options: Any) -> Any:
        calls.append(name)
        if len(calls) < cache.ATTEMPTS:
            raise OSError(5, "the connection broke")
        return get(name, target, **options)

    monkeypatch.setattr(fs, "get_file", failing)
    monkeypatch.setattr(cache, "PAUSE", 0.001)
    assert ShardReader(store, "train").shard(0).num_rows
    calls.clear()
    monkeypatch.setattr(cache, "ATTEMPTS", 3)
    monkeypatch.setattr(fs, "get_file", lambda *arguments: exec("raise OSError(5, 'the connection broke')"))
    with pytest.raises(JobError, match=r"cannot be fetched: .*the connection broke; try again when"):
        ShardReader(store, "train").shard(1)


def test_a_full_cache_disk_is_the_users_to_mend(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fsspec.filesystem("s3"), "get_file", full)
    with pytest.raises(UserError, match=r"no room for .*TOKENFREE_CACHE_GB"):
        ShardReader(store, "train").shard(1)


def test_a_killed_fetch_leaves_nothing_in_the_way(store: str, tmp_path: Path) -> None:
    split = ShardReader(store, "train")
    program = (
        "import os, sys, fsspec\n"
        "from tokenfree.train.data import shards as cache\n"
        "from tokenfree.train.data.shards import ShardReader\n"
        "cache.hash_file = lambda path: os.kill(os.getpid(), 9)\n"
        "ShardReader(sys.argv[1], 'train').shard(4)\n"
    )
    assert fork(program, store).wait() == -9
    assert [path.suffix for path in (tmp_path / "cache").glob(f"{split.shards[4].sha256}.*")] != []
    assert split.shard(4).num_rows == split.shards[4].rows
    assert not list((tmp_path / "cache").glob("*.partial"))
