"""Callbacks of Ray Train's controller: one avoids nodes that do not answer, one fits the workers to the others."""

import collections
import functools
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train import ScalingConfig

from tokenfree.core.ray_access import answers
from tokenfree.train.ray.internals import ControllerCallback, Reservation, WorkerGroupCallback, draining_nodes

_log = logging.getLogger("ray.train")

_SECONDS = 0.5  # timeout for a connection to a node; its kernel accepts, so a busy node answers too
_PROBE_INTERVAL = 0.5  # seconds between checks of the nodes of running workers
# Consecutive failed checks after which a node is given up.
_PROBES = 4
_NODE_ID = "ray.io/node-id"
_REFRESH_INTERVAL = 5.0  # seconds between refreshes of the resources while workers run
# The same while no workers run.
_WAITING_INTERVAL = 0.5
_ANSWER_SECONDS = 5.0  # timeout for Ray to report the resources


def answering_nodes() -> tuple[set[str], set[str]]:
    """Return the ids of the nodes that accept connections, and of those that do not but are alive for Ray."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    with ThreadPoolExecutor(max(1, min(32, len(nodes)))) as pool:
        addresses = [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in nodes]
        answered = list(pool.map(functools.partial(answers, seconds=_SECONDS), addresses))
    ids = {node["NodeID"] for node, well in zip(nodes, answered, strict=True) if well}
    return ids, {node["NodeID"] for node in nodes} - ids


def usable_nodes() -> tuple[set[str], set[str]]:
    """Return the ids of the nodes that can start workers, and of the other nodes that Ray considers alive."""
    answering, silent = answering_nodes()
    draining = answering & draining_nodes()
    return answering - draining, silent | draining


class GroupCallback(ControllerCallback, WorkerGroupCallback):
    """A callback that has the group of running workers, or None."""

    _group: Any = None

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._group = worker_group

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        self._group = None


class NodeCallback(GroupCallback):
    """A callback that ends workers on nodes that do not answer, and keeps new workers off those nodes.

    A node without a network closes no connection, so the other workers would wait for half an hour.
    """

    def __init__(self) -> None:
        self._probed_at = float("-inf")
        # Number of consecutive failed checks of a node.
        self._silences = collections.Counter[str]()

    def on_controller_start_worker_group(
        self, *, scaling_config: Any, num_workers: int
    ) -> dict[str, str] | None:
        usable, others = usable_nodes()
        if not others or not usable:
            return None
        _log.info("Nodes that do not answer or are being drained: %s", ", ".join(sorted(others)))
        return {_NODE_ID: f"in({','.join(sorted(usable))})"}

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        if self._group is None or time.monotonic() - self._probed_at < _PROBE_INTERVAL:
            return
        self._probed_at = time.monotonic()
        silent = answering_nodes()[1]
        self._silences = collections.Counter({node: self._silences[node] + 1 for node in silent})
        for worker in self._group.get_workers():
            if self._silences[worker.metadata.node_id] >= _PROBES:
                _log.warning("Node %s does not answer; its workers are given up", worker.metadata.node_id)
                ray.kill(worker.actor)


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
