"""Progress is told from what is committed."""

from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Progress, Watcher, furthest
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.features import vocabulary_process
from tokenfree.preprocess.job.inputs import identity
from tokenfree.preprocess.job.job import PLAN, RUNS, WORK, PreprocessJob
from tokenfree.preprocess.job.output import begin
from tokenfree.preprocess.job.read import read_one_split
from tokenfree.preprocess.job.steps import make_plan
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits


def test_stages_come_in_order_and_end_with_all_done(corpus: Path, tmp_path: Path, make_config: Any) -> None:
    seen: list[Progress] = []
    manifest = run_preprocess(make_config(corpus, split_bytes=2_000), str(tmp_path / "out"), progress=seen.append)
    stages = [progress.stage for progress in seen]
    order = ("read", "vocabulary", "build", "finish")
    assert stages == sorted(stages, key=order.index)
    assert stages[0] == "read"
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    size, characters = sum(shard.bytes for shard in shards), manifest.counters["characters"]
    lost: dict[str, Any] = {"failed": 0, "dropped": {"duplicate": 6}}
    assert seen[-1] == Progress("finish", len(shards), len(shards), size, characters, **lost)
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


def test_the_training_of_the_vocabulary_is_told_while_it_lasts(
    job: PreprocessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary_process, "WORTH_A_PROCESS", 1)
    watcher = Watcher(job, lambda _: None)
    assert watcher.look().training is None
    make_plan(job)
    assert watcher.look().training is None  # the shards are next
    job.storage.remove(PLAN)
    told = watcher.look()
    assert told.stage == "vocabulary"
    assert told.training is not None
    assert told.training.phase == "candidates"  # the first; the others came too soon after it


def test_pages_that_are_left_out_are_told_by_reason_while_a_job_works(tmp_path: Path, make_config: Any) -> None:
    pages = [("Rain", 0, "The rain falls."), ("Old", 0, "#REDIRECT [[Rain]]"), ("Talk:Rain", 1, "Hm."), ("E", 0, "")]
    dump = "".join(
        f"<page><title>{title}</title><ns>{ns}</ns><id>{number}</id><revision><text>{text}</text></revision></page>"
        for number, (title, ns, text) in enumerate(pages)
    )
    head = "<siteinfo><dbname>enwiki</dbname></siteinfo>"
    (tmp_path / "wiki.xml").write_text(f'<mediawiki xml:lang="en">{head}{dump}</mediawiki>')
    config: PreprocessConfig = make_config(wikipedia=(str(tmp_path / "wiki.xml"),))
    inputs = find_inputs(config)
    splits = plan_splits(config, inputs)
    job = begin(Storage.at(str(tmp_path / "out")), identity(config, inputs), config, inputs, splits)
    watcher = Watcher(job, lambda _: None)
    assert watcher.look().dropped == {}
    for index in range(len(splits)):
        read_one_split(job, index)
    told = watcher.look()
    assert told.failed == 0
    assert told.dropped == {"redirect": 1, "other_namespace": 1, "empty": 1, "too_short": 1}


@pytest.mark.parametrize("damage", ['"../x"', '{"file": "../x"}', '{"file": {"batches": [1]}}', "[]"])
def test_a_damaged_run_is_not_counted(damage: str, job: PreprocessJob, tmp_path: Path) -> None:
    whole = Watcher(job, lambda _: None).look()
    sidecar = next((tmp_path / "out" / RUNS).glob("*.json"))
    sidecar.write_text(damage)
    assert Watcher(job, lambda _: None).look().done == whole.done - 1
