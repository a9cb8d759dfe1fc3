"""Nodes that answer or do not, without a cluster: what Ray's controller gets."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.train import ScalingConfig

from tokenfree.train.ray import callbacks
from tokenfree.train.ray.callbacks import NodeCallback, ResizeCallback, worker_capacity

TWO_TO_FOUR = ScalingConfig(num_workers=(2, 4), resources_per_worker={"CPU": 2, "GPU": 0})


def test_the_room_for_workers_is_counted_node_by_node() -> None:
    assert worker_capacity({}, TWO_TO_FOUR) == 0
    assert worker_capacity({"a": {"CPU": 3.0}, "b": {"CPU": 5.0}}, TWO_TO_FOUR) == 3
    assert worker_capacity({"a": {"CPU": 100.0}}, TWO_TO_FOUR) == 4
    assert worker_capacity({"a": {"memory": 1e9}}, TWO_TO_FOUR) == 0


@pytest.mark.parametrize(
    ("usable", "others", "expected"),
    [
        ({"a", "b"}, set(), None),
        ({"b", "a"}, {"c"}, {"ray.io/node-id": "in(a,b)"}),
        (set(), {"a", "b"}, None),  # Ray refuses "in()", and is about to notice
    ],
)
def test_the_nodes_that_ray_is_to_choose_from(
    usable: set[str], others: set[str], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "usable_nodes", lambda: (usable, others))
    assert NodeCallback().on_controller_start_worker_group(scaling_config=None, num_workers=2) == expected


def test_nodes_that_are_drained_start_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "answering_nodes", lambda: ({"a", "b", "c"}, {"d"}))
    monkeypatch.setattr(callbacks, "draining_nodes", lambda: {"c"})
    assert callbacks.usable_nodes() == ({"a", "b"}, {"c", "d"})


class Group:
    """Three workers, whose status is `running` until they are polled `polls` times."""

    def __init__(self, polls: int) -> None:
        self.polls = polls

    def get_workers(self) -> list[int]:
        return [0, 1, 2]

    def get_latest_poll_status(self) -> Any:
        return SimpleNamespace(errors={} if self.polls else {0: "stopped"}, finished=False)

    def poll_status(self, timeout: float) -> None:
        self.polls -= 1


def test_workers_stop_before_there_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    channel = SimpleNamespace(ask_to_stop=SimpleNamespace(remote=lambda *what: asked.append(what)))
    callback = ResizeCallback(TWO_TO_FOUR, channel)
    rooms = iter([1, 1, 3])
    monkeypatch.setattr(callback, "_num_that_fit", lambda: next(rooms))
    monkeypatch.setattr(callbacks.time, "sleep", lambda seconds: None)
    group = Group(polls=2)
    callback.after_worker_group_start(group)
    decision = SimpleNamespace(num_workers=4)
    callback.before_controller_execute_resize_decision(decision)
    assert asked == [("a change from 3 to 4 workers", True)]
    assert group.polls == 0
    assert decision.num_workers == 3  # a node was lost meanwhile; with room for one, it waited

    rooms = iter([2])
    callback.before_controller_execute_resize_decision(decision)  # workers that failed are not asked
    assert len(asked) == 1
    assert decision.num_workers == 2
