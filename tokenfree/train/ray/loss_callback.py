"""A callback of Ray Train's controller that ends a run or records an event when workers fail."""

from typing import Any

import ray

from tokenfree.train.loop.worker import Stopped
from tokenfree.train.ray.internals import WorkerGroupCallback
from tokenfree.train.ray.worker_errors import GaveUp, LostPeer, own_errors
from tokenfree.train.runs.run import Run


class LossCallback(WorkerGroupCallback):
    """A callback that ends the run or records an event when workers fail. Ray restarts workers without limit.

    It raises `GaveUp` if a worker raised an error itself, which would recur, or after `max_losses` losses.
    Stops with a checkpoint are not counted. Workers are asked to stop before their node is drained and
    removed.
    """

    def __init__(self, run: str, owner: str | None, channel: Any, max_losses: int) -> None:
        self._run, self._owner, self._channel, self._left = run, owner, channel, max_losses
        self._reported = self._noticed = False

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._reported = self._noticed = False

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        info = worker_group_status.get_preemption_info()
        if info is not None and not self._noticed:
            self._noticed = True
            self._channel.ask_to_stop.remote(
                f"the coming end of node {', '.join(info.preempted_node_ids)}", True
            )
        if worker_group_status.errors:
            self._report(worker_group_status.errors)

    def _report(self, worker_exceptions: dict[int, Exception]) -> None:
        """Report who was lost or stopped.

        While a node goes down, Ray repeats this call with the same errors.
        """
        worker_errors = own_errors(worker_exceptions)
        if worker_errors:
            raise GaveUp(worker_errors)
        if self._reported:
            return
        self._reported = True
        stopped = [error for error in worker_exceptions.values() if isinstance(error, Stopped)]
        if stopped:
            message = (
                f"workers stopped after step {stopped[0].step} by {stopped[0].reason}; starting them again"
            )
            self._record([], message)
            return
        if not self._left:
            raise GaveUp({})
        self._left -= 1
        ranks = [rank for rank, error in sorted(worker_exceptions.items()) if not isinstance(error, LostPeer)]
        lost = f"worker {', '.join(map(str, ranks))}" if ranks else "a worker"
        self._record(ranks, f"{lost} was lost; starting the workers again from the newest checkpoint")

    def _record(self, ranks: list[int], message: str) -> None:
        line = Run(self._run, self._owner).add_event("worker_lost", ranks=ranks, message=message)
        ray.get(self._channel.post.remote([line]))
