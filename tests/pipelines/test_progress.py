"""Progress is told from what is committed."""

from pathlib import Path
from typing import Any

from pipelines.preprocess import run_preprocess
from pipelines.progress import Progress, Watcher, furthest
from preprocess.config import PreprocessConfig
from preprocess.job import PLAN, begin, make_plan, read_one_split
from preprocess.manifest import load_manifest
from preprocess.ownership import WORK, identity
from preprocess.sources import hash_inputs, plan_splits
from preprocess.storage import Storage


def test_stages_come_in_order_and_end_with_all_done(corpus: Path, tmp_path: Path, make_config: Any) -> None:
    seen: list[Progress] = []
    manifest = run_preprocess(make_config(corpus, split_bytes=2_000), str(tmp_path / "out"), progress=seen.append)
    stages = [progress.stage for progress in seen]
    order = ("read", "vocabulary", "build", "finish")
    assert stages == sorted(stages, key=order.index)
    assert stages[0] == "read"
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert seen[-1] == Progress(
        "finish", len(shards), len(shards), sum(shard.bytes for shard in shards), manifest.counters["characters"]
    )
    assert all(progress.done <= progress.total for progress in seen)
    assert load_manifest(str(tmp_path / "out")) == manifest


def test_progress_does_not_go_back_when_the_work_is_removed(corpus: Path, tmp_path: Path, make_config: Any) -> None:
    config: PreprocessConfig = make_config(corpus)
    splits = plan_splits(config)
    storage = Storage.at(str(tmp_path / "out"))
    job = begin(storage, identity(config, hash_inputs([str(corpus)])), config, splits)
    for index in range(len(splits)):
        read_one_split(job, index)
    make_plan(job)
    watcher = Watcher(job, lambda _: None)
    building = watcher.look()
    assert (building.stage, building.done) == ("build", 0)
    storage.remove(PLAN)
    removing = watcher.look()
    assert removing.stage == "vocabulary"  # as it looks
    assert furthest(building, removing) == building
    storage.remove(WORK)
    assert furthest(building, watcher.look()) == building
    assert furthest(None, removing) == removing
    assert furthest(removing, building) == building
