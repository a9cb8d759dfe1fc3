"""What the command does when the process that is connected to Ray ends, with others in place of that process."""

import contextlib
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import RECIPE
from tests.train.jobs import drivers
from tokenfree.core.errors import JobError
from tokenfree.core.settings import build, merge
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import TrainJob
from tokenfree.train.ray import child as ray_child
from tokenfree.train.ray import child as supervisor
from tokenfree.train.ray.child import work_on_ray
from tokenfree.train.ray.cluster import Session
from tokenfree.train.runs.run import Run

NODE = "the Ray node of this machine (its raylet, or another process of Ray) was lost"
AGAIN = "; starting Ray and the workers again"
STARTING = "starting 2 workers under Ray: waiting for Ray itself"


class Told(list[Any]):
    """The messages of events that a progress hears of."""

    def __call__(self, line: Any) -> None:
        self.append(line.get("message", line["event"]))


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """What listens where a node of Ray and a head would."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        session = Session(made[0].getsockname(), made[1].getsockname(), local=False)
        (tmp_path / drivers.SESSION).write_bytes(pickle.dumps(session))
        monkeypatch.setenv(drivers.FOLDER, str(tmp_path))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(ray_child, "_SETTLE_SECONDS", 0.3)
        yield made


def work(tmp_path: Path, driver: Any, monkeypatch: pytest.MonkeyPatch, *, max_restarts: int = 5) -> Told:
    monkeypatch.setattr(supervisor, "_DRIVER", f"{drivers.__name__}:{driver.__name__}")
    recipe = build(PretrainRecipe, merge(RECIPE, {"train": {"max_restarts": max_restarts}}), source="test")
    told = Told()
    work_on_ray(TrainJob(recipe=recipe, data="data", run=str(tmp_path / drivers.RUN)), (2, 2), told)
    return told


def test_a_process_that_ray_ends_is_started_again(
    parts: list[socket.socket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    told = work(tmp_path, drivers.die_twice, monkeypatch)
    again = NODE + AGAIN
    assert told == [STARTING, "start", again, "start", again, "start"]
    assert [event["message"] for event in Run(tmp_path / "run").events()] == [again, again]
    assert (tmp_path / "run" / "ray" / "standard_error.txt").read_text() == "[core_worker.cc] lost\n"
    assert capfd.readouterr() == ("", "")


def test_what_the_start_waits_for_is_repeated(
    parts: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_child, "_REPEAT_INTERVAL", 0.3)
    told = work(tmp_path, drivers.place_slowly, monkeypatch)
    assert told.count(STARTING) >= 1
    assert told.count("placing") >= 3
    assert told[-1] == "start"


def test_an_untested_version_is_one_line(
    parts: list[socket.socket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ray_child, "untested", lambda: "Ray 2.61.0 was not tested")
    work(tmp_path, drivers.die_twice, monkeypatch)
    assert caplog.messages == ["Ray 2.61.0 was not tested"]


def test_losses_come_to_an_end(
    parts: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobError, match="was lost; look for a lack of memory, and run the same command again"):
        work(tmp_path, drivers.die_twice, monkeypatch, max_restarts=1)


def test_a_lost_part_of_a_cluster_is_named_and_nothing_started_again(
    parts: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(JobError, match=r"^the head was lost; start it, and run the same command again"):
        work(tmp_path, drivers.lose, monkeypatch)
    parts[0].close()
    with pytest.raises(
        JobError, match=r"^the Ray node of this machine .* was lost; start it, and run the same"
    ):
        work(tmp_path, drivers.die_twice, monkeypatch)


def test_with_its_cluster_well_the_command_goes_on(
    parts: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    told = work(tmp_path, drivers.die_once, monkeypatch)
    assert told[2].startswith("a process of Ray that leads the others was lost; ")
    assert told[2].endswith("starting the workers again from the newest checkpoint")


def test_a_run_that_is_complete_is_no_loss(
    parts: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work(tmp_path, drivers.finish_and_die, monkeypatch) == [STARTING]


def test_a_process_that_never_connects_is_not_started_again(
    parts: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        JobError, match=r"^Ray ended the process that was to connect to it; run the same command again"
    ):
        work(tmp_path, drivers.die_at_once, monkeypatch)


def test_a_signal_reaches_the_workers(
    parts: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Told, "__call__", lambda self, line: line["event"] == "start" and os.kill(os.getpid(), 15)
    )
    with pytest.raises(JobError, match=r"^stopped by SIGTERM after step 3$"):
        work(tmp_path, drivers.wait_for_the_end, monkeypatch)
