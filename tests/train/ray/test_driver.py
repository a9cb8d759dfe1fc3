"""Two workers of Ray Train: finished, and with one of them killed."""

import contextlib
import os
import pickle
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.train import ControllerError, WorkerGroupError

from tests.conftest import read_json_lines
from tokenfree.core.errors import JobError, StoppedError, UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.worker import Stopped, roll_backs
from tokenfree.train.pretrain import pretrain
from tokenfree.train.ray import driver
from tokenfree.train.ray.child import ray_processes
from tokenfree.train.ray.worker_errors import Cause, GaveUp, LostPeer, explain, unwrap
from tokenfree.train.runs.run import Run

MakeRecipe = Callable[..., PretrainRecipe]
CLOCK = ("seconds", "data_wait", "utilisation")


def history(run: Path) -> list[dict[str, Any]]:
    lines = read_json_lines(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


class KillsAWorker:
    """A progress that kills one worker of this process's Ray session at a step, once."""

    def __init__(self, step: int) -> None:
        self.lines: list[Any] = []
        self.seconds_to_next_step = 0.0
        self._step, self._killed_at = step, 0.0

    def __call__(self, line: Mapping[str, Any]) -> None:
        self.lines.append(line)
        if "event" in line:
            return
        if not self._killed_at and line["step"] >= self._step:
            workers = ray_processes(title="ray::RayTrainWorker")
            assert len(workers) == 2
            os.kill(workers[0].pid, signal.SIGKILL)
            self._killed_at = time.monotonic()
        elif self._killed_at and not self.seconds_to_next_step and self._restarted():
            self.seconds_to_next_step = time.monotonic() - self._killed_at

    def _restarted(self) -> bool:
        return any(line.get("event") == "resume" for line in self.lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_killed_worker_is_made_good_bit_for_bit(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, parallel: str
) -> None:
    options: Any = {"steps": 400, "micro_batch": 2, "checkpoint_every_steps": 20, "validate_every_steps": 100}
    recipe = make_recipe(parallel=parallel, **options)
    kill = KillsAWorker(step=50)
    killed = pretrain(recipe, corpus, str(tmp_path / "killed"), workers=(2, 2), progress=kill)
    quiet = pretrain(recipe, corpus, str(tmp_path / "quiet"), workers=(2, 2))

    assert (killed.restarts, quiet.restarts) == (1, 0)
    names = [line["event"] for line in read_json_lines(tmp_path / "killed" / "events.jsonl")]
    assert names == ["start", "worker_lost", "resume", "complete"]
    assert history(tmp_path / "killed") == history(tmp_path / "quiet")
    print(f"from the kill to the next step: {kill.seconds_to_next_step:.1f} s")
    assert 0 < kill.seconds_to_next_step < 60
    assert list((tmp_path / "killed" / "ray").rglob("ray-train-*.log"))  # why it restarted can be read later

    alone = pretrain(make_recipe(**options), corpus, str(tmp_path / "alone"))
    first = [line["loss"] for line in history(tmp_path / "alone")[:20]]
    assert [line["loss"] for line in history(tmp_path / "quiet")[:20]] == pytest.approx(first, rel=1e-4)
    assert alone.validation_loss == pytest.approx(quiet.validation_loss, rel=0.05)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_workers_roll_back_as_one_does(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """A threshold that ordinary losses cross."""
    recipe = make_recipe(
        model={"trunk": {"dropout": 0.0}}, steps=24, learning_rate=1e-5, checkpoint_every_steps=5,
        on_spike="roll_back", spike_window=5, spike_deviations=1.8, max_roll_backs=30,
    )  # fmt: skip
    both, one = tmp_path / "both", tmp_path / "one"
    pretrain(recipe, corpus, str(both), workers=(2, 2))
    pretrain(recipe, corpus, str(one))
    backs = [[(record["batch"], record["checkpoint"], record["left_out"]) for record in roll_backs(run)]
             for run in (both, one)]  # fmt: skip
    assert backs[0]
    assert backs[0] == backs[1]
    lines = [[line for line in history(run) if "loss" in line] for run in (both, one)]
    assert [line["step"] for line in lines[0]] == list(range(1, 25))
    losses = [[line["loss"] for line in each] for each in lines]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_an_error_of_a_worker_comes_first_with_its_rank(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(corpus, tmp_path / "data"))
    shard = data / "train" / "data-00000-of-00001.arrow"
    shard.write_bytes(shard.read_bytes()[:1000])
    began = threading.Event()
    with pytest.raises(JobError, match=r"worker \d: .*data-00000-of-00001.arrow has 1000 bytes"):
        pretrain(
            make_recipe(), str(data), str(tmp_path / "run"), workers=(2, 2), progress=lambda line: began.set()
        )
    assert began.is_set()
    assert ray_processes() == []


def test_what_the_user_reads(tmp_path: Path) -> None:
    peer, lost, run = LostPeer("gloo"), ActorDiedError(), Run(tmp_path)
    mistake = explain(WorkerGroupError("", {0: peer, 1: UserError("train.length: 3")}), run, "ray")
    assert (type(mistake), str(mistake)) == (UserError, "worker 1: train.length: 3")
    assert "train.max_restarts" in str(explain(WorkerGroupError("", {0: peer, 1: lost}), run, "ray"))
    stopped = explain(WorkerGroupError("", {0: Stopped("SIGTERM", 4, False)}), run, "ray")
    assert type(stopped) is StoppedError
    assert stopped.exit_status == 128 + signal.SIGTERM
    assert str(stopped).startswith("worker 0: stopped by SIGTERM after step 4;")
    gave_up = ControllerError(GaveUp({1: UserError("train.length: 3")}))
    assert str(explain(pickle.loads(pickle.dumps(gave_up)), run, "ray")) == "worker 1: train.length: 3"
    assert "train.max_restarts" in str(explain(ControllerError(GaveUp({})), run, "ray"))
    assert "no CPU" in str(explain(ControllerError(ValueError("no CPU\nmore")), run, "ray"))


def test_an_unexpected_error_leaves_its_traceback_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("x")

    context = SimpleNamespace(get_world_rank=lambda: 1, get_world_size=lambda: 2)
    monkeypatch.setattr("ray.train.get_context", lambda: context)
    monkeypatch.setattr(driver, "get_device", lambda: "cpu")
    monkeypatch.setattr(driver, "exit_if_cut_off", contextlib.nullcontext)
    monkeypatch.setattr(driver, "work", fail)
    job = pickle.dumps(SimpleNamespace(run=str(tmp_path)))
    path = tmp_path / "ray" / "error_of_worker_1.txt"
    with pytest.raises(JobError, match=f"^KeyError: 'x'; its traceback is in {path}$"):
        driver._work_on_worker(job, None, {"threads": 1})
    assert 'raise KeyError("x")' in path.read_text()


def wrapped(error: Exception) -> RayTaskError:
    return RayTaskError("step", "Traceback ...", error)


def test_what_ray_wraps_around_an_error_comes_off() -> None:
    bug = KeyError("x")
    for error in (bug, wrapped(bug), wrapped(wrapped(bug)), ControllerError(wrapped(bug))):
        assert unwrap(error) == Cause(bug)
    several = WorkerGroupError("", {2: bug, 1: LostPeer("gloo"), 0: ActorDiedError()})
    assert unwrap(several) == Cause(bug, rank=2)
    assert unwrap(WorkerGroupError("", {0: ActorDiedError()})) == Cause(None)
