"""Rows of shards as views, and what is said of damaged, incomplete and remote ones."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from tokenfree.core.errors import JobError, UserError
from tokenfree.train.data import shards as reader
from tokenfree.train.data.mixture import Mixture, parse
from tokenfree.train.data.shards import ShardReader, absolute, as_data, open_shard


def test_rows_are_what_arrow_reads(data: str) -> None:
    split = ShardReader(data, "train")
    for number, entry in enumerate(split.shards):
        with pa.OSFile(f"{data}/{entry.path}") as source:
            expected = pa.ipc.open_stream(source).read_all().to_pylist()
        shard = split.shard(number)
        assert shard.num_rows == entry.rows == len(expected)
        for index, row in enumerate(expected):
            for column, value in row.items():
                found = shard.row(column, index)
                assert bytes(found).decode() == value if isinstance(value, str) else found.tolist() == value


def test_nothing_is_copied_and_no_file_stays_open(data: str) -> None:
    before = pa.total_allocated_bytes()
    descriptors = len(os.listdir("/proc/self/fd"))
    split = ShardReader(data, "train")
    rows = split.rows(("codepoints", "subword_starts"), np.array([0, 2, 0]), np.array([5, 59, 22]))
    assert [len(arrays) for arrays in rows.values()] == [3, 3]
    assert pa.total_allocated_bytes() == before
    assert not rows["codepoints"][0].flags.writeable
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_rows_outlive_a_shard_that_was_closed(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_OPEN", 1)
    split = ShardReader(data, "train")
    row = split.shard(0).row("codepoints", 3)
    kept = row.tolist()
    split.shard(1)
    split.shard(2)
    assert row.tolist() == kept
    assert split.shard(0).row("codepoints", 3).tolist() == kept


def test_a_column_that_is_not_there_is_named(data: str) -> None:
    with pytest.raises(UserError, match=r"no column 'word_starts' .*preprocess again"):
        ShardReader(data, "train").rows(("word_starts",), np.array([0]), np.array([0]))


def test_a_cut_or_absent_or_foreign_shard_is_named(make_data: Callable[..., str], tmp_path: Path) -> None:
    data = make_data(tmp_path, [("train", "en", 30), ("train", "en", 30), ("train", "en", 30)])
    first, second, third = sorted((tmp_path / "train").iterdir())
    first.write_bytes(first.read_bytes()[:-100])
    second.unlink()
    third.write_bytes(b"x" * third.stat().st_size)
    split = ShardReader(data, "train")
    for index, path in enumerate((first, second, third)):
        with pytest.raises(JobError, match=rf"{re.escape(str(path))} .*tokenfree verify"):
            split.shard(index)


def test_spread_is_even_and_at_most_all(data: str) -> None:
    split = ShardReader(data, "train")
    numbers, shards, rows = split.spread(10)
    assert numbers.tolist() == [157 * i // 10 for i in range(10)]
    assert (shards[0], rows[0]) == (0, 0)
    assert (shards[5], rows[5]) == (2, 78 - 63)
    assert len(split.spread(1000)[0]) == 157


def test_a_remote_shard_is_fetched_once_and_checked(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENFREE_CACHE", str(tmp_path))
    entry = ShardReader(data, "train").shards[0]
    content = Path(data, entry.path).read_bytes()
    memory = fsspec.filesystem("memory")
    memory.pipe("/remote/a.arrow", content)
    memory.pipe("/remote/b.arrow", content[:-1] + b"?")
    shard = open_shard("memory://remote/a.arrow", num_bytes=entry.bytes, sha256=entry.sha256)
    assert (
        shard.row("codepoints", 4).tolist()
        == ShardReader(data, "train").shard(0).row("codepoints", 4).tolist()
    )
    memory.rm("/remote/a.arrow")
    open_shard("memory://remote/a.arrow", num_bytes=entry.bytes, sha256=entry.sha256)
    wrong = "0" * 64
    with pytest.raises(JobError, match=r"b\.arrow has SHA-256 .*tokenfree verify"):
        open_shard("memory://remote/b.arrow", num_bytes=entry.bytes, sha256=wrong)
    with pytest.raises(JobError, match="absent"):
        open_shard("memory://remote/c.arrow", num_bytes=entry.bytes, sha256=wrong)
    assert [path.name for path in tmp_path.glob("*.arrow")] == [f"{entry.sha256}.arrow"]


def test_the_cache_is_bounded(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = ShardReader(data, "train").shards[:3]
    monkeypatch.setenv("TOKENFREE_CACHE", str(tmp_path))
    monkeypatch.setenv(
        "TOKENFREE_CACHE_GB", str((shards[0].bytes + shards[1].bytes + shards[2].bytes - 1) / 1e9)
    )
    memory = fsspec.filesystem("memory")
    for age, entry in enumerate(shards):
        memory.pipe(f"/{entry.path}", Path(data, entry.path).read_bytes())
        open_shard(f"memory://{entry.path}", num_bytes=entry.bytes, sha256=entry.sha256)
        os.utime(tmp_path / f"{entry.sha256}.arrow", (age, age))
    assert {path.stem for path in tmp_path.glob("*.arrow")} == {shards[1].sha256, shards[2].sha256}


def test_what_is_stored_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["a b:1"], ["a b:0.7", "s3://c/d:3"], ["a", "s3://c/d"]):
        data = absolute(parse(words))
        assert as_data(data.words() if isinstance(data, Mixture) else data) == data
    assert absolute(parse(["a", "s3://c/d"])) == Mixture((f"{tmp_path}/a", "s3://c/d"))
