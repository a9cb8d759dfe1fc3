"""Shards of this machine are hashed once before their first use, and what is damaged is never trained on."""

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenfree.core.errors import JobError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data import shards as checked_shards
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.pretrain import pretrain

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are hashed, in a process that has not hashed any yet."""
    found: list[str] = []
    checked_shards._hash.cache_clear()
    real = checked_shards.hash_file
    monkeypatch.setattr(
        checked_shards, "hash_file", lambda path: found.append(os.path.basename(path)) or real(path)
    )
    return found


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_each_shard_is_hashed_once_before_its_first_use(data: str, hashed: list[str]) -> None:
    split = ShardReader(data, "train")
    assert hashed == []
    first, second = (os.path.basename(entry.path) for entry in split.shards[:2])
    split.shard(0)
    ShardReader(data, "train").shard(0)
    assert hashed == [first]
    split.shard(1)
    assert hashed == [first, second]
    os.utime(Path(data, split.shards[0].path))
    ShardReader(data, "train").shard(0)
    assert hashed == [first, second, first]
    ShardReader(data, "train", check=False).shard(2)
    assert len(hashed) == 3


def test_any_flipped_bit_is_seen_even_where_the_time_stays(
    make_data: Callable[..., str], tmp_path: Path, hashed: list[str]
) -> None:
    data = make_data(tmp_path, [("train", "en", 30)])
    path = next((tmp_path / "train").glob("*.arrow"))
    ShardReader(data, "train").shard(0)
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    for bit in random.Random(0).sample(range(8 * path.stat().st_size), 60):
        flip(path, bit)
        os.utime(path, ns=times)
        with pytest.raises(
            JobError, match=r"data-00000-of-00001\.arrow is damaged.*`tokenfree verify`.*again"
        ):
            ShardReader(data, "train").shard(0)
        flip(path, bit)
    assert ShardReader(data, "train").shard(0).num_rows == 30


def test_shards_are_hashed_ahead_of_their_use(data: str, hashed: list[str]) -> None:
    split = ShardReader(data, "train")
    split.fetch_ahead(np.array([1]))
    while not hashed:
        time.sleep(0.01)
    time.sleep(0.1)
    split.shard(1)
    assert len(hashed) == 1
    assert split.is_prepared
    assert not ShardReader(data, "train", check=False).is_prepared


def test_a_manifest_that_counts_other_rows_is_no_index_error(
    make_data: Callable[..., str], tmp_path: Path
) -> None:
    data = make_data(tmp_path, [("train", "en", 30)])
    values = json.loads((tmp_path / "manifest.json").read_text())
    values["splits"]["train"]["shards"][0]["rows"] = 31
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    split = ShardReader(data, "train")
    with pytest.raises(JobError, match=r"has 30 rows, its manifest says 31; run `tokenfree verify`"):
        split.rows(("codepoints",), np.array([0]), np.array([30]))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_training_ends_on_a_damaged_shard_with_its_name(
    split: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(corpus, tmp_path / "data"))
    path = sorted((data / split).glob("*.arrow"))[0]
    draw = random.Random(1)
    for attempt in range(2):
        bit = draw.randrange(8 * path.stat().st_size)
        flip(path, bit)
        with pytest.raises(JobError, match=rf"{split}/{path.name} is damaged.*run `tokenfree verify`"):
            pretrain(make_recipe(), str(data), str(tmp_path / f"run{attempt}"))
        flip(path, bit)
    pretrain(make_recipe(), str(data), str(tmp_path / "run"))


def test_the_key_turns_it_off_also_for_a_run_that_goes_on(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, hashed: list[str]
) -> None:
    settings: dict[str, Any] = {"check_shards": False}
    pretrain(make_recipe(**settings), corpus, str(tmp_path / "run"))
    assert hashed == []
    assert pretrain(make_recipe(), corpus, str(tmp_path / "run"), extend_to=9).steps == 9
    assert hashed
