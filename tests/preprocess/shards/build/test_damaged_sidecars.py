"""A damaged sidecar counts as missing: its files are made again."""

import contextlib
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.damage import damaged_bytes, put, wrong_json
from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import write_sealed
from tokenfree.preprocess.dataset.manifest import ShardEntry
from tokenfree.preprocess.job.job import JOB, read_job_identity
from tokenfree.preprocess.shards.build import BuiltShard, find_shard

ROWS = b"rows"
ENTRY = ShardEntry("train/a.arrow", "en", 3, 2, 50, 4, hashlib.sha256(ROWS).hexdigest())
SHARD = BuiltShard("f0", ENTRY, 1, 9, 0, {"5": 2}, {"Latin": 40})


def test_of_a_shard(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write_bytes(ENTRY.path, ROWS)
    write_sealed(storage, "one.json", asdict(SHARD))
    assert find_shard(storage, "one.json", "f0") == SHARD
    content = (tmp_path / "one.json").read_bytes()
    damaged = [each for each in damaged_bytes(content, step=5) if each is not None]
    for each in (*damaged, *wrong_json(content)):
        put(tmp_path / "one.json", each)
        assert find_shard(storage, "one.json", "f0") is None


def test_of_a_begun_job(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    assert read_job_identity(storage) is None
    job = {"format": 3, "config": {"seed": 0}, "versions": {"numpy": "2"}, "inputs": [{"path": "a", "size": 1}]}
    storage.write_json(JOB, job)
    assert read_job_identity(storage) == job
    content = json.dumps(job).encode()
    for each in (*damaged_bytes(content), *wrong_json(content)):
        put(tmp_path / JOB, each)
        with contextlib.suppress(UserError):  # any other error fails the test
            read_job_identity(storage)
    put(tmp_path / JOB, None)
    with pytest.raises(UserError, match="remove the output directory"):
        read_job_identity(storage)
