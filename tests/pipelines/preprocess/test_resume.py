"""Jobs that are killed, whole or a worker of them, end with the bytes of an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import tokenfree
from tokenfree.core.errors import JobError, TakenOverError
from tokenfree.core.settings_values import to_mapping
from tokenfree.pipelines import local
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.job import read as read_step
from tokenfree.preprocess.job.finish import finish
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.output import begin
from tokenfree.preprocess.job.stages import STAGES, Stage, one_task

JOB = """
import sys
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.core.settings import build
import json
run_preprocess(build(PreprocessConfig, json.loads(sys.argv[1]), source="test"), sys.argv[2])
"""
MANY = {
    "split_bytes": 1000,
    "shards": 60,
}  # many splits and shards, so that the job is somewhere among them when it dies


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, "the job ended before it could be killed"
        time.sleep(0.002)


@pytest.fixture
def start() -> Callable[[PreprocessConfig, Path], subprocess.Popen[bytes]]:
    """Starts a job in a process of its own."""

    def run(config: PreprocessConfig, output: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", JOB, json.dumps(to_mapping(config)), str(output)]
        environment = {**os.environ, "PYTHONPATH": str(Path(tokenfree.__file__).parents[1])}
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    return run


def committed(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")} if folder.is_dir() else {}


def test_a_job_killed_twice_repeats_only_what_was_not_committed(
    tmp_path: Path,
    make_corpus: Any,
    make_config: Any,
    read_shards: Any,
    start: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corpus, output = tmp_path / "books.jsonl", tmp_path / "out"
    make_corpus(corpus, 150)
    config = make_config(corpus, **MANY)
    run_preprocess(config, str(tmp_path / "undisturbed"))

    process = start(config, output)
    wait_for(lambda: len(committed(output / "_work" / "runs")) >= 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    runs = committed(output / "_work" / "runs")
    assert not (output / "manifest.json").exists()

    process = start(config, output)
    wait_for(lambda: len(committed(output / "_work" / "shards")) >= 5, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert runs.items() <= committed(output / "_work" / "runs").items()  # none was written again
    shards = {output / path.relative_to(output / "_work" / "shards").with_suffix("") for path in
              committed(output / "_work" / "shards")}  # fmt: skip
    before = {path: path.stat().st_ino for path in shards}

    reads: list[str] = []
    read = read_step.read_split
    monkeypatch.setattr(
        read_step, "read_split", lambda split, *rest: reads.append(split.to_json()) or read(split, *rest)
    )
    run_preprocess(config, str(output))
    assert reads == []
    assert {path: path.stat().st_ino for path in shards} == before
    assert read_shards(output) == read_shards(tmp_path / "undisturbed")
    assert (output / "manifest.json").read_bytes() == (
        tmp_path / "undisturbed" / "manifest.json"
    ).read_bytes()
    assert not (output / "_work").exists()
    assert not (output / "_tmp").exists()


def test_another_cut_of_the_inputs_may_end_a_killed_job(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tokenfree.preprocess.job.steps.plan_shards", lambda *_: 1 / 0)
        with pytest.raises(JobError):
            run_preprocess(make_config(corpus, split_bytes=3_000), str(tmp_path / "out"))
    run_preprocess(make_config(corpus, split_bytes=7_000), str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)


def test_a_damaged_run_is_made_again(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tokenfree.preprocess.job.steps.plan_shards", lambda *_: 1 / 0)
        with pytest.raises(JobError):
            run_preprocess(make_config(corpus, split_bytes=3_000), str(tmp_path / "out"))
    first, second, *_ = sorted((tmp_path / "out" / "_work" / "runs").glob("*.arrow"))
    first.write_bytes(first.read_bytes()[:-10])
    second.with_suffix(".json").write_text('{"fingerprint": ')
    run_preprocess(make_config(corpus, split_bytes=3_000), str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)


def our_workers() -> list[psutil.Process]:
    """The worker processes: children of the server that forks them, which is our child."""
    servers = [
        each
        for each in psutil.Process().children()
        if "multiprocessing.forkserver" in " ".join(each.cmdline())
    ]
    return [worker for server in servers for worker in server.children()]


def test_a_killed_worker_costs_only_its_split(
    tmp_path: Path, make_corpus: Any, make_config: Any, read_shards: Any
) -> None:
    """One worker is killed as soon as a split is read."""
    corpus, output = tmp_path / "books.jsonl", tmp_path / "out"
    make_corpus(corpus, 150)
    killed: list[int] = []
    ended = threading.Event()

    def kill_one() -> None:
        while not killed and not ended.wait(0.002):
            if committed(output / "_work" / "runs"):
                for worker in our_workers()[:1]:
                    worker.kill()
                    killed.append(worker.pid)

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        run_preprocess(make_config(corpus, **MANY), str(output), workers=2)
    finally:
        ended.set()
        killer.join()
    assert len(killed) == 1
    run_preprocess(make_config(corpus, shards=60), str(tmp_path / "undisturbed"))
    assert read_shards(output) == read_shards(tmp_path / "undisturbed")


def die(job: PreprocessJob, _: int) -> None:
    """Count the attempt, and die in the middle of a task."""
    with open(f"{job.url}/attempts", "a") as file:
        file.write("dead ")
    os.kill(os.getpid(), signal.SIGKILL)


def die_when_finished(job: PreprocessJob, _: int) -> None:
    finish(job)
    die(job, 0)


def test_workers_that_die_again_and_again_end_the_job(
    corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "STAGES", (Stage("die", one_task, die),))
    with pytest.raises(JobError, match="out of memory"):
        run_preprocess(make_config(corpus), str(tmp_path / "out"), workers=2)
    assert (tmp_path / "out" / "attempts").read_text() == "dead dead "


def test_a_step_repeated_after_the_end_changes_nothing(
    corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[PreprocessJob] = []
    monkeypatch.setattr(
        "tokenfree.pipelines.preprocess.begin", lambda *given: jobs.append(begin(*given)) or jobs[0]
    )
    manifest = run_preprocess(make_config(corpus), str(tmp_path / "out"))
    mark = (tmp_path / "out" / "_SUCCESS").read_bytes()
    (tmp_path / "out" / "_SUCCESS").unlink()
    with pytest.raises(TakenOverError):  # the job has ended; an engine's retry gets through it, see `still`
        finish(jobs[0])
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert run_preprocess(make_config(corpus), str(tmp_path / "out")) == manifest
    assert (tmp_path / "out" / "_SUCCESS").read_bytes() == mark


def test_a_worker_that_dies_in_the_last_step_leaves_a_finished_job(
    corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = run_preprocess(make_config(corpus), str(tmp_path / "whole"))
    monkeypatch.setattr(local, "STAGES", (*STAGES[:-1], Stage("finish", one_task, die_when_finished)))
    assert run_preprocess(make_config(corpus), str(tmp_path / "out"), workers=2) == manifest
    assert (tmp_path / "out" / "attempts").read_text() == "dead "
    assert (tmp_path / "out" / "_SUCCESS").read_bytes() == (tmp_path / "whole" / "_SUCCESS").read_bytes()
