"""The stages on a Ray cluster of this machine. Several nodes are in
tests/workflows/cluster/local/test_preprocess.py."""

import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.pipelines.conftest import quick_config
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.job.job import ATTEMPT, PreprocessJob
from tokenfree.preprocess.job.stages import STAGES, Stage, one_task
from tokenfree.workflows.cli import main

LOOPBACK = "127.0.0.1"
Shards = Callable[[Path], dict[str, bytes]]


def test_a_cluster_must_be_named_and_answer(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["preprocess", "--books", str(corpus), "--output", str(tmp_path / "out"), "--runner", "ray"]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(words) == 2
    assert "no Ray cluster is named; set RAY_ADDRESS=HOST:PORT" in capsys.readouterr().err
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        monkeypatch.setenv("RAY_ADDRESS", f"{LOOPBACK}:{free.getsockname()[1]}")
    assert main(words) == 2
    assert "no head of a Ray cluster answers at RAY_ADDRESS=127.0.0.1:" in capsys.readouterr().err
    with socket.create_server((LOOPBACK, 0)) as server, ThreadPoolExecutor() as pool:
        monkeypatch.setenv("RAY_ADDRESS", f"{LOOPBACK}:{server.getsockname()[1]}")
        status = pool.submit(main, words)
        with server.accept()[0] as dashboard:
            dashboard.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert status.result(20) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "or use tokenfree cluster submit" in line
    assert not (tmp_path / "out").exists()


def test_memory_is_of_one_process(corpus: Path) -> None:
    with pytest.raises(UserError, match="other processes cannot see it"):
        run_preprocess(quick_config(corpus), "memory://out", runner="ray", workers=1)


def test_without_it_ray_is_not_imported() -> None:
    program = "import sys, tokenfree.pipelines.preprocess; print('ray' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    assert done.stdout.strip() == "False"


@pytest.fixture(scope="module")
def ray_stages() -> Iterator[Any]:
    """`tokenfree.pipelines.ray`, in a process that is connected to a cluster of two CPUs."""
    from tokenfree.pipelines import ray as module
    from tokenfree.train.ray.cluster import ray_session

    with ray_session(2):
        yield module


def test_the_bytes_are_those_of_the_direct_runner(
    made: Path, corpus: Path, tmp_path: Path, read_shards: Shards, ray_stages: Any
) -> None:
    said: list[str] = []
    run_preprocess(quick_config(corpus), str(tmp_path / "ray"), runner="ray", notice=said.append)
    assert read_shards(tmp_path / "ray") == read_shards(made)
    assert said == []


BUILD = [stage.name for stage in STAGES].index("Build a shard")


def die_twice(job: PreprocessJob, index: int) -> object:
    """Build a shard, in the third attempt at the first one."""
    attempts = Path(job.url) / "_work" / "attempts"
    if index == 0 and (not attempts.exists() or attempts.stat().st_size < 2):
        with attempts.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return STAGES[BUILD].function(job, index)


def die(job: PreprocessJob, index: int) -> None:
    """Die in each attempt."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_lost_worker_costs_its_task(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    read_shards: Shards,
    ray_stages: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages = (*STAGES[:BUILD], STAGES[BUILD]._replace(function=die_twice), *STAGES[BUILD + 1 :])
    monkeypatch.setattr(ray_stages, "STAGES", stages)
    said: list[str] = []
    run_preprocess(quick_config(corpus), str(tmp_path / "ray"), runner="ray", workers=1, notice=said.append)
    assert read_shards(tmp_path / "ray") == read_shards(made)
    assert said == ["a worker on the Ray cluster died (out of memory?); its task is repeated"] * 2


def test_workers_that_die_again_and_again_end_the_job(
    corpus: Path, tmp_path: Path, ray_stages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_stages, "STAGES", (Stage("die", one_task, die),))
    said: list[str] = []
    with pytest.raises(JobError, match="a worker died; was it out of memory"):
        run_preprocess(quick_config(corpus), str(tmp_path / "ray"), runner="ray", notice=said.append)
    assert len(said) == ray_stages.MAX_LOSSES - 1


def test_what_a_step_fails_on_is_no_loss(tmp_path: Path, ray_stages: Any) -> None:
    empty = tmp_path / "books.jsonl"
    said: list[str] = []
    empty.write_text('{"id": "d0", "language": "en", "text": ""}\n')
    with pytest.raises(UserError) as direct:
        run_preprocess(quick_config(empty), str(tmp_path / "out"))
    with pytest.raises(UserError, match=re.escape(str(direct.value))):
        run_preprocess(quick_config(empty), str(tmp_path / "out"), runner="ray", notice=said.append)
    assert said == []


def test_a_node_that_does_not_see_the_files_is_refused(corpus: Path, tmp_path: Path, ray_stages: Any) -> None:
    storage = Storage.at(str(tmp_path / "out"))
    storage.write_json(ATTEMPT, {"id": "this"})
    job = PreprocessJob(storage.url, quick_config(corpus), "", "", "", "", attempt="this")
    ray_stages._do_task(job, [str(corpus)], lambda *_: None, 0)
    with pytest.raises(UserError, match=r"/nowhere: the Ray node [\d.]+ does not see it; give an address"):
        ray_stages._do_task(job, [str(corpus), "/nowhere"], lambda *_: None, 0)
    # Which has a folder of the same name.
    with pytest.raises(UserError, match=f"{storage.url}: the Ray node"):
        ray_stages._do_task(dataclasses.replace(job, attempt="other"), [], lambda *_: None, 0)
