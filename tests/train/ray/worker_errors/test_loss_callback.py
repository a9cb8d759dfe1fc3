"""Which failures of workers end a run, and how often each is reported."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import ray
from ray.exceptions import ActorDiedError
from ray.train import PreemptionInfo

from tokenfree.core.errors import JobError, UserError
from tokenfree.train.loop.worker import Stopped
from tokenfree.train.ray.worker_errors import GaveUp, LossCallback, LostPeer

PEER, LOST = LostPeer("gloo: Connection closed by peer"), ActorDiedError()
BUG = JobError("KeyError: 'x'")


class Channel:
    """What stands in for the actor: an asked end is noted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.ask_to_stop = self

    def remote(self, *what: Any) -> None:
        self.asked.append(what)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(LossCallback, "_record", lambda self, ranks, message: lines.append(message))
    return lines


def test_errors_of_our_own_end_the_run(told: list[str]) -> None:
    callback = LossCallback("run", None, None, max_losses=3)
    for failures, own in (
        ({0: PEER, 1: BUG}, {1: BUG}),
        ({0: UserError("no"), 1: LOST}, {0: UserError("no")}),
    ):
        with pytest.raises(GaveUp) as gave_up:
            callback._report(failures)
        assert list(gave_up.value.args[0]) == list(own)
    stopped = Stopped("SIGINT", 4, False)
    with pytest.raises(GaveUp):
        callback._report({0: stopped})
    assert told == []


def test_losses_are_counted_and_stops_are_not(told: list[str]) -> None:
    callback = LossCallback("run", None, None, max_losses=2)
    several: list[dict[int, Exception]] = [
        {0: PEER, 1: LOST},
        {0: Stopped("SIGTERM", 7, True), 1: LOST},
        {0: PEER},
    ]
    for failures in several:
        callback.after_worker_group_start(None)
        callback._report(failures)
    assert [line.partition(" was")[0].partition(" after")[0] for line in told] == [
        "worker 1",
        "workers stopped",
        "a worker",
    ]
    callback.after_worker_group_start(None)
    with pytest.raises(GaveUp) as gave_up:
        callback._report({1: LOST})
    assert gave_up.value.args[0] == {}


def test_a_loss_is_told_once_however_often_ray_comes_with_it(told: list[str]) -> None:
    """Ray Train looks five times a second at workers of a node that is taken away, until it is gone."""
    callback = LossCallback("run", None, None, max_losses=1)
    for _ in range(3):
        callback._report({1: LOST})
    assert len(told) == 1
    callback.after_worker_group_start(None)
    with pytest.raises(GaveUp):
        callback._report({1: LOST})


def test_the_coming_end_of_a_node_is_asked_for_once() -> None:
    class Status:
        errors: ClassVar[dict[int, Exception]] = {}

        def get_preemption_info(self) -> PreemptionInfo:
            return PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"b": [1], "a": [0]})

    channel = Channel()
    notice = LossCallback("run", None, channel, max_losses=1)
    for _ in range(3):
        notice.after_worker_group_poll_status(Status())
    assert channel.asked == [("the coming end of node a, b", True)]
    notice.after_worker_group_start(None)
    notice.after_worker_group_poll_status(Status())
    assert len(channel.asked) == 2


def test_a_loss_is_an_event_of_the_run_and_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, lines = SimpleNamespace(post=SimpleNamespace(remote=lambda lines: lines)), list[Any]()
    monkeypatch.setattr(ray, "get", lines.extend)
    LossCallback(str(tmp_path), None, channel, max_losses=1)._report({1: LOST})
    (line,) = lines
    assert (line["event"], line["ranks"]) == ("worker_lost", [1])
    assert line["message"] in (tmp_path / "events.jsonl").read_text()
