"""What Ray Train's controller does when workers fail: which errors end the run, and how losses are told and counted."""

from __future__ import annotations

from typing import Any

import ray
from ray.train import UserCallback

from tokenfree.train.ray.errors import GaveUp, LostPeer, own_errors
from tokenfree.train.ray.internals import WorkerGroupCallback
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.metrics import Line
from tokenfree.train.worker.worker import Stopped


class LossCallback(UserCallback):
    """Ends the run by raising `GaveUp` at an error of a worker's own, which would come again, and at one loss too many;
    writes other losses to the events of the run. Ray then starts the workers again, as often as it takes.

    Args:
        run, owner: see `tokenfree.train.runs.locate.run_at`.
        channel: of the run, see train/ray/channel.py.
        most: losses that are made good; stops with a checkpoint cost nothing.
    """

    def __init__(self, run: str, owner: str | None, channel: Any, most: int) -> None:
        self._run, self._owner, self._channel, self._left = run, owner, channel, most
        self._told = False

    def begin(self) -> None:
        """Workers were started: what fails now is told again."""
        self._told = False

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Tell who was lost or stopped, by rank; while a node goes away, Ray calls this with the same again and again.

        Raises:
            GaveUp: the run is to end.
        """
        own = own_errors(worker_exceptions)
        if own:
            raise GaveUp(own)
        if self._told:
            return
        self._told = True
        stopped = [error for error in worker_exceptions.values() if isinstance(error, Stopped)]
        if stopped:
            message = f"workers stopped after step {stopped[0].step} by {stopped[0].reason}; starting them again"
            self._record([], message)
            return
        if not self._left:
            raise GaveUp({})
        self._left -= 1
        ranks = [rank for rank, error in sorted(worker_exceptions.items()) if not isinstance(error, LostPeer)]
        lost = f"worker {', '.join(map(str, ranks))}" if ranks else "a worker"
        self._record(ranks, f"{lost} was lost; starting the workers again from the newest checkpoint")

    def _record(self, ranks: list[int], message: str) -> None:
        ray.get(self._channel.post.remote([record_loss(self._run, self._owner, ranks, message)]))


class NoticeCallback(WorkerGroupCallback):
    """Tells `losses` of each start of workers, and the workers of the coming end of a node: Ray drains it, as
    autoscalers do before they take it away.
    """

    def __init__(self, losses: LossCallback, channel: Any) -> None:
        self._losses, self._channel = losses, channel
        self._told = False

    def after_worker_group_start(self, worker_group: Any) -> None:
        """See `LossCallback.begin`."""
        self._losses.begin()
        self._told = False

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Have the workers stop with a checkpoint."""
        info = worker_group_status.get_preemption_info()
        if info is not None and not self._told:
            self._told = True
            self._channel.ask_to_stop.remote(f"the coming end of node {', '.join(info.preempted_node_ids)}", True)


def record_loss(run: str, owner: str | None, ranks: list[int], message: str) -> Line:
    """Write a `worker_lost` event; returns its line."""
    return run_at(run, owner).add_event("worker_lost", ranks=ranks, message=message)
