"""Progress is computed from what is committed."""

from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Progress, Watcher, furthest
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.job.inputs import identity
from tokenfree.preprocess.job.job import PLAN, RUNS, WORK, PreprocessJob
from tokenfree.preprocess.job.output import begin
from tokenfree.preprocess.job.read import read_one_split
from tokenfree.preprocess.job.steps import make_plan
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits


def test_stages_come_in_order_and_end_with_all_done(corpus: Path, tmp_path: Path, make_config: Any) -> None:
    seen: list[Progress] = []
    manifest = run_preprocess(
        make_config(corpus, split_bytes=2_000), str(tmp_path / "out"), progress=seen.append
    )
    stages = [progress.stage for progress in seen]
    order = ("read", "vocabulary", "build", "finish")
    assert stages == sorted(stages, key=order.index)
    assert stages[0] == "read"
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    size, characters = sum(shard.bytes for shard in shards), manifest.counters["characters"]
    assert seen[-1] == Progress("finish", len(shards), len(shards), size, characters)
    assert all(progress.done <= progress.total for progress in seen)
    assert load_manifest(str(tmp_path / "out")) == manifest


@pytest.fixture
def job(corpus: Path, tmp_path: Path, make_config: Any) -> PreprocessJob:
    """One whose splits are read."""
    config: PreprocessConfig = make_config(corpus)
    inputs = find_inputs(config)
    splits = plan_splits(config, inputs)
    storage = Storage.at(str(tmp_path / "out"))
    job = begin(storage, identity(config, inputs), config, inputs, splits)
    for index in range(len(splits)):
        read_one_split(job, index)
    return job


def test_progress_does_not_go_back_when_the_work_is_removed(job: PreprocessJob) -> None:
    make_plan(job)
    watcher = Watcher(job, lambda _: None)
    building = watcher.look()
    assert (building.stage, building.done) == ("build", 0)
    job.storage.remove(PLAN)
    removing = watcher.look()
    assert removing.stage == "vocabulary"  # as it looks
    assert furthest(building, removing) == building
    job.storage.remove(WORK)
    assert furthest(building, watcher.look()) == building
    assert furthest(None, removing) == removing
    assert furthest(removing, building) == building


@pytest.mark.parametrize("damage", ['"../x"', '{"file": "../x"}', '{"file": {"parts": [1]}}', "[]"])
def test_a_damaged_run_is_not_counted(damage: str, job: PreprocessJob, tmp_path: Path) -> None:
    whole = Watcher(job, lambda _: None).look()
    sidecar = next((tmp_path / "out" / RUNS).glob("*.json"))
    sidecar.write_text(damage)
    assert Watcher(job, lambda _: None).look().done == whole.done - 1
