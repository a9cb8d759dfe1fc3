"""A job whose command was killed may continue on its engine; a later job is not disturbed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import JobError
from tokenfree.pipelines import local, preprocess
from tokenfree.pipelines.beam import run_graph, runner_options
from tokenfree.preprocess.job.finish import finish
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.read import hash_one_input, read_one_split
from tokenfree.preprocess.job.steps import build_one_shard, load_plan, make_plan

STEPS: dict[str, Callable[[PreprocessJob], Any]] = {
    "read": lambda job: read_one_split(job, 0),
    "hash": lambda job: hash_one_input(job, 0),
    "plan": make_plan,
    "build": lambda job: [build_one_shard(job, index) for index in range(len(load_plan(job.storage).shards))],
    "finish": finish,
}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[PreprocessJob]:
    """All jobs that commands begin."""
    begun: list[PreprocessJob] = []
    begin = preprocess.begin
    monkeypatch.setattr(preprocess, "begin", lambda *given: begun.append(begin(*given)) or begun[-1])
    return begun


def lose(monkeypatch: pytest.MonkeyPatch, output: Path, config: Any) -> None:
    """A command that ends before its graph has run."""
    with monkeypatch.context() as patched:
        patched.setattr(preprocess, "_run", lambda *_: 1 / 0)
        with pytest.raises(JobError):
            preprocess.run_preprocess(config, str(output))


@pytest.mark.parametrize("step", STEPS)
def test_an_earlier_attempt_writes_nothing(
    step: str,
    jobs: list[PreprocessJob],
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "out"
    config = make_config(corpus)
    lose(monkeypatch, output, config)
    lose(monkeypatch, output, config)
    first, second = jobs
    for name, of_the_second in STEPS.items():
        if name == step:
            break
        of_the_second(second)
    before = sorted(output.rglob("*"))
    with pytest.raises(JobError, match="another command continues this job, or has ended it"):
        STEPS[step](first)
    assert sorted(output.rglob("*")) == before
    STEPS[step](second)


def test_an_engine_gets_through_a_job_that_was_taken_over(
    jobs: list[PreprocessJob], corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    lose(monkeypatch, output, make_config(corpus))
    lose(monkeypatch, output, make_config(corpus))
    before = sorted(output.rglob("*"))
    run_graph(jobs[0], runner_options("beam", 1))
    local.run_stages(jobs[0], 2)
    assert sorted(output.rglob("*")) == before


def test_it_brings_no_file_back_into_a_finished_directory(
    jobs: list[PreprocessJob], corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    lose(monkeypatch, output, make_config(corpus))
    preprocess.run_preprocess(make_config(corpus), str(output))
    before = sorted(output.rglob("*"))
    for name in ("read", "hash", "plan", "build"):
        with pytest.raises((JobError, FileNotFoundError)):
            STEPS[name](jobs[0])
    assert sorted(output.rglob("*")) == before
