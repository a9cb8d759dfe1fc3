"""Many runs are merged into fewer files, level by level; the shards do not change, whatever happens on the way."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokenfree
from tests.pipelines.conftest import WORDS
from tokenfree.core.errors import JobError, UserError
from tokenfree.pipelines import local
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Progress, Watcher
from tokenfree.preprocess.config import NearDuplicateConfig
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.job import finish, merges, steps
from tokenfree.preprocess.job.job import MERGED, MERGING, RUNS, PreprocessJob
from tokenfree.preprocess.job.stages import STAGES

Shards = Callable[[Path], dict[str, bytes]]
SPLIT_BYTES = 1_000
JOB = """
import sys
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.job import merges
from tests.pipelines.conftest import quick_config
merges.MERGED_RUNS, merges.FILE_BYTES = 4, 8_000
run_preprocess(quick_config(sys.argv[1], split_bytes=1_000), sys.argv[2])
"""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four runs are many."""
    monkeypatch.setattr(merges, "MERGED_RUNS", 4)
    monkeypatch.setattr(merges, "FILE_BYTES", 8_000)


def arrow_files(output: Path, folder: str) -> list[str]:
    return sorted(path.name for path in (output / folder).glob("*.arrow"))


@pytest.mark.usefixtures("few")
def test_merged_runs_give_the_same_shards(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Shards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At two levels, of which only the files of the last remain when the shards are built."""
    seen: list[tuple[list[str], list[str]]] = []
    build = steps.build_shard

    def looking(*args: Any, **options: Any) -> Any:
        seen.append((arrow_files(tmp_path / "out", RUNS), arrow_files(tmp_path / "out", MERGED)))
        return build(*args, **options)

    monkeypatch.setattr(steps, "build_shard", looking)
    manifest = run_preprocess(make_config(corpus, split_bytes=SPLIT_BYTES), str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)
    assert manifest.counters["duplicates"] == 6
    runs, merged = seen[0]
    assert runs == []
    assert merged
    assert {name[:2] for name in merged} == {"2-"}


def test_many_runs_are_merged_by_several_processes(
    tmp_path: Path, make_corpus: Any, make_config: Any, read_shards: Shards
) -> None:
    """By the constants as they are."""
    corpus = tmp_path / "books.jsonl"
    make_corpus(corpus, 600)
    run_preprocess(make_config(corpus), str(tmp_path / "one"))
    merged: set[str] = set()
    run_preprocess(
        make_config(corpus, split_bytes=SPLIT_BYTES),
        str(tmp_path / "out"),
        workers=2,
        progress=lambda _: merged.update(arrow_files(tmp_path / "out", MERGED)),
    )
    assert {name.rpartition("-")[0] for name in merged} >= {"1-00000", "1-00001"}
    assert read_shards(tmp_path / "out") == read_shards(tmp_path / "one")


def failing_at(number: int, written: list[str]) -> Callable[..., Any]:
    """`write_batches`, which fails at the call with this number and notes the paths of those earlier."""
    calls, write = list[int](), merges.write_batches

    def failing(storage: Any, path: str, batches: Any) -> Any:
        calls.append(1)
        file = write(storage, path, batches) if len(calls) < number else 1 / 0
        written.append(path)
        return file

    return failing


@pytest.mark.usefixtures("few")
def test_a_job_that_failed_at_any_merge_goes_on(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Shards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At both levels, and when the files that one has joined are removed. No committed merge is repeated."""
    config, written = make_config(corpus, split_bytes=SPLIT_BYTES), list[str]()
    write, remove = merges.write_batches, merges._end
    for number in (1, 3):
        with monkeypatch.context() as patched:
            patched.setattr(merges, "write_batches", failing_at(number, written))
            with pytest.raises(JobError, match="ZeroDivisionError"):
                run_preprocess(config, str(tmp_path / "out"))
        with monkeypatch.context() as patched:
            patched.setattr(merges, "_end", lambda *args: remove(*args) or 1 / 0)
            patched.setattr(merges, "write_batches", lambda *args: written.append(args[1]) or write(*args))
            with pytest.raises(JobError, match="ZeroDivisionError"):
                run_preprocess(config, str(tmp_path / "out"))
    run_preprocess(config, str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)
    assert len(written) == len(set(written))


@pytest.mark.usefixtures("few")
def test_damaged_merged_runs_are_merged_again_from_inputs(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Shards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, output = make_config(corpus, split_bytes=SPLIT_BYTES), tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(steps, "build_shard", lambda *_, **__: 1 / 0)
        with pytest.raises(JobError):
            run_preprocess(config, str(output))
    for path in (output / MERGED).glob("*.arrow"):
        data = bytearray(path.read_bytes())
        if data:
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
    with pytest.raises(JobError, match=r"_work/merged/2-\d{5}-\d{5}\.arrow: damaged; run the job again$"):
        run_preprocess(config, str(output))
    assert not (output / MERGING).exists()
    run_preprocess(config, str(output))
    assert read_shards(output) == read_shards(made)


@pytest.mark.usefixtures("few")
def test_a_full_disk_ends_with_the_bytes_that_it_lacks(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Shards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, usage = make_config(corpus, split_bytes=SPLIT_BYTES), shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
        with pytest.raises(
            UserError, match=r"needs [\d,]+ bytes and 1,000 are free; free [\d,]+ more and run"
        ):
            run_preprocess(config, str(tmp_path / "out"))
    committed = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / RUNS).iterdir()}
    assert committed
    with monkeypatch.context() as patched:
        patched.setattr(merges, "write_batches", lambda *_: 1 / 0)
        with pytest.raises(JobError):
            run_preprocess(config, str(tmp_path / "out"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / RUNS).iterdir()} == committed
    run_preprocess(config, str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)


@pytest.mark.usefixtures("few")
def test_another_cut_does_not_use_merged_runs_of_the_first(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Shards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(steps, "build_shard", lambda *_, **__: 1 / 0)
        with pytest.raises(JobError):
            run_preprocess(make_config(corpus, split_bytes=SPLIT_BYTES), str(tmp_path / "out"))
    assert (tmp_path / "out" / MERGING).exists()
    run_preprocess(make_config(corpus, split_bytes=3 * SPLIT_BYTES), str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)


@pytest.mark.usefixtures("few")
def test_a_job_that_failed_at_its_end_goes_on(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Shards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(finish, "write_card", lambda *_: 1 / 0)
        with pytest.raises(JobError):
            run_preprocess(make_config(corpus, split_bytes=SPLIT_BYTES), str(tmp_path / "out"))
    assert arrow_files(tmp_path / "out", MERGED)
    with monkeypatch.context() as patched:
        patched.setattr(merges, "write_batches", lambda *_: 1 / 0)
        run_preprocess(make_config(corpus, split_bytes=SPLIT_BYTES), str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)


@pytest.mark.usefixtures("few")
def test_near_duplicates_of_merged_runs(tmp_path: Path, make_config: Any) -> None:
    corpus, draw = tmp_path / "books.jsonl", random.Random(0)
    texts = [" ".join(draw.choices(WORDS["en"].split(), k=150)) for _ in range(30)]
    texts += [f"{text} goose" for text in texts[:10]]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    near = NearDuplicateConfig(min_similarity=0.8)
    whole = run_preprocess(
        make_config(corpus, near_duplicates=near, split_bytes=10**6), str(tmp_path / "whole")
    )
    merged = run_preprocess(
        make_config(corpus, near_duplicates=near, split_bytes=SPLIT_BYTES), str(tmp_path / "merged")
    )
    assert whole.counters["near_duplicates"] == 10
    assert merged.counters == whole.counters
    assert merged.splits == whole.splits


@pytest.mark.usefixtures("few")
def test_each_stage_of_merges_may_be_listed_again(
    corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an engine does that lost what a step returned."""

    def twice(job: PreprocessJob, workers: int) -> None:
        for stage in STAGES:
            for index in [*range(stage.count(job)), *range(stage.count(job))]:
                stage.function(job, index)

    monkeypatch.setattr(local, "run_stages", twice)
    run_preprocess(make_config(corpus, split_bytes=SPLIT_BYTES), str(tmp_path / "out"))
    assert not verify(str(tmp_path / "out"))


@pytest.mark.usefixtures("few")
def test_progress_counts_the_merges_of_all_levels(
    corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Progress] = []
    merge = merges.merge_runs

    def looking(job: PreprocessJob, index: int) -> str:
        seen.append(Watcher(job, lambda _: None).look())
        return merge(job, index)

    stages = [stage._replace(function=looking) if stage.function is merge else stage for stage in STAGES]
    monkeypatch.setattr(local, "STAGES", stages)
    run_preprocess(make_config(corpus, split_bytes=SPLIT_BYTES), str(tmp_path / "out"))
    assert {progress.stage for progress in seen} == {"merge"}
    assert [progress.done for progress in seen] == list(range(len(seen)))
    assert seen[-1].total == len(seen) > seen[0].total


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_moments_change_nothing(
    seed: int, made: Path, corpus: Path, tmp_path: Path, read_shards: Shards
) -> None:
    draw, kills = random.Random(seed), 0
    environment = {**os.environ, "PYTHONPATH": str(Path(tokenfree.__file__).parents[1])}
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(corpus), str(tmp_path / "out")],
            env=environment,
            start_new_session=True,
        )
        try:
            assert process.wait(draw.uniform(1.5, 4.0)) == 0
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills > 1
    assert read_shards(tmp_path / "out") == read_shards(made)
