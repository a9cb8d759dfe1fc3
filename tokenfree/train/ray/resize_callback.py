"""A callback of Ray Train's controller that fits the number of workers to the nodes."""

import logging
import time
from typing import Any

from ray.exceptions import RayError
from ray.train import ScalingConfig

from tokenfree.train.ray.internals import Reservation
from tokenfree.train.ray.node_callback import GroupCallback, usable_nodes

_log = logging.getLogger("ray.train")

_REFRESH_INTERVAL = 5.0  # seconds between refreshes of the resources while workers run
# The same while no workers run.
_WAITING_INTERVAL = 0.5
_ANSWER_SECONDS = 5.0  # timeout for Ray to report the resources


def worker_capacity(reserved: dict[str, dict[str, float]], scaling: ScalingConfig) -> int:
    per_worker: Any = scaling.resources_per_worker
    needs = {name: amount for name, amount in per_worker.items() if amount}
    fit = (
        min(int(there.get(name, 0) // amount) for name, amount in needs.items())
        for there in reserved.values()
    )
    return min(sum(fit), scaling.max_workers)


class ResizeCallback(GroupCallback):
    """A callback that fits the number of workers to the room on nodes that answer.

    Running workers stop first.
    """

    def __init__(self, scaling: ScalingConfig, channel: Any) -> None:
        self._scaling, self._channel = scaling, channel
        self._refreshed_at = float("-inf")
        self._reservation: Reservation | None = None

    def after_controller_start(self, train_run_context: Any) -> None:
        """Open the reservation. Ray requests the resources in its own callback, which runs first."""
        self._reservation = Reservation(train_run_context.run_id)

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        """Refresh the resources that Ray plans with, which could be 20 seconds old.

        Pause while Ray waits for room.
        """
        if current_state is previous_state:
            time.sleep(_WAITING_INTERVAL)
        interval = _REFRESH_INTERVAL if self._is_running() else _WAITING_INTERVAL
        if self._reservation is not None and time.monotonic() - self._refreshed_at >= interval:
            self._refreshed_at = time.monotonic()
            self._reservation.refresh()

    def before_controller_execute_resize_decision(self, resize_decision: Any) -> None:
        if self._is_running():
            count = f"{len(self._group.get_workers())} to {resize_decision.num_workers}"
            self._channel.ask_to_stop.remote(f"a change from {count} workers", True)
            while self._is_running():
                time.sleep(0.2)
                self._group.poll_status(timeout=1.0)
        while (num_workers := self._num_that_fit()) < self._scaling.min_workers:
            time.sleep(_WAITING_INTERVAL)
        if num_workers != resize_decision.num_workers:
            _log.info(
                "%d workers, and not %d: nodes were lost or came", num_workers, resize_decision.num_workers
            )
        resize_decision.num_workers = num_workers

    def _is_running(self) -> bool:
        status = None if self._group is None else self._group.get_latest_poll_status()
        return status is not None and not status.errors and not status.finished

    def _num_that_fit(self) -> int:
        assert self._reservation is not None
        try:
            reserved = self._reservation.read(seconds=_ANSWER_SECONDS)
        except RayError:  # Ray is busy; the caller retries
            return 0
        usable = usable_nodes()[0]
        return worker_capacity(
            {node: resources for node, resources in reserved.items() if node in usable}, self._scaling
        )
