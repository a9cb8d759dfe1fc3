"""How many workers, and on which nodes: what Ray Train's controller is told by its callbacks about nodes that are lost.

Ray declares a node dead when some of its health checks have failed, after 15 seconds or more, and plans with it until
then. These callbacks ask the nodes themselves, by a connection to their raylets.
"""

from __future__ import annotations

import collections
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train import ScalingConfig

from tokenfree.train.ray.internals import ControllerCallback, Reservation, WorkerGroupCallback, draining_nodes

_SECONDS = 0.5  # for a node to accept a connection, which its kernel does, however busy the node is
_PROBE_INTERVAL = 0.5  # between looks at the nodes of running workers
_PROBES = 4  # in which a node must be silent to be given up
_FRESH = 1.0  # for what was seen of the nodes
_REFRESH_INTERVAL = 5.0  # between two looks for room while workers run
_WAITING_INTERVAL = 0.5  # and while none do
_ANSWER_SECONDS = 5.0  # for Ray to say what room there is
_NODE_ID = "ray.io/node-id"
_log = logging.getLogger("ray.train")


def answers(address: str, port: int) -> bool:
    """Whether something at `address` accepts a connection."""
    try:
        socket.create_connection((address, port), timeout=_SECONDS).close()
    except OSError:
        return False
    return True


def answering_nodes() -> tuple[set[str], set[str]]:
    """The ids of the nodes that accept connections, and of those that Ray still takes for alive but do not."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    with ThreadPoolExecutor(max(1, min(32, len(nodes)))) as pool:
        answered = list(pool.map(lambda node: answers(node["NodeManagerAddress"], node["NodeManagerPort"]), nodes))
    ids = {node["NodeID"] for node, well in zip(nodes, answered, strict=True) if well}
    return ids, {node["NodeID"] for node in nodes} - ids


class _Look:
    """The last look at the nodes: with one that is silent it takes half a second, and a start of workers needs two."""

    at = float("-inf")
    found: tuple[set[str], set[str]] = (set(), set())


def usable_nodes() -> tuple[set[str], set[str]]:
    """The ids of the nodes on which workers can be started, and of the others that Ray takes for alive, as they were
    within a second.
    """
    if time.monotonic() - _Look.at > _FRESH:
        answering, silent = answering_nodes()
        draining = answering & draining_nodes()
        _Look.at, _Look.found = time.monotonic(), (answering - draining, silent | draining)
    return _Look.found


def room(reserved: dict[str, dict[str, float]], scaling: ScalingConfig) -> int:
    """How many workers fit into the resources of each node, at most as many as are wished for."""
    wished: Any = scaling.resources_per_worker
    needs = {name: amount for name, amount in wished.items() if amount}
    fit = (min(int(there.get(name, 0) // amount) for name, amount in needs.items()) for there in reserved.values())
    return min(sum(fit), scaling.max_workers)


class NodeCallback(ControllerCallback, WorkerGroupCallback):
    """Workers of nodes that do not answer any more are ended, and none are started there."""

    def __init__(self) -> None:
        self._probed_at = float("-inf")
        self._silences = collections.Counter[str]()  # in how many probes in a row a node was silent
        self._group: Any = None

    def on_controller_start_worker_group(self, *, scaling_config: Any, num_workers: int) -> dict[str, str] | None:
        """The node labels that Ray is to choose by: None where all nodes can be used, or none seems to be."""
        usable, others = usable_nodes()
        if not others or not usable:
            return None
        _log.info("Nodes that do not answer or are being drained: %s", ", ".join(sorted(others)))
        return {_NODE_ID: f"in({','.join(sorted(usable))})"}

    def after_worker_group_start(self, worker_group: Any) -> None:
        """Watch the nodes of these workers."""
        self._group = worker_group

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """Watch them no more."""
        self._group = None

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """A node without a network ends no connection; its workers' peers would wait for half an hour."""
        if self._group is None or time.monotonic() - self._probed_at < _PROBE_INTERVAL:
            return
        self._probed_at = time.monotonic()
        silent = answering_nodes()[1]
        self._silences = collections.Counter({node: self._silences[node] + 1 for node in silent})
        for worker in self._group.get_workers():
            if self._silences[worker.metadata.node_id] >= _PROBES:
                _log.warning("Node %s does not answer; its workers are given up", worker.metadata.node_id)
                ray.kill(worker.actor)


class ResizeCallback(ControllerCallback, WorkerGroupCallback):
    """For a number of workers between two bounds: as many as there is room for now, on nodes that answer; where others
    are running, they are stopped with a checkpoint first.

    `channel` is the run's (see train/ray/channel.py).
    """

    def __init__(self, scaling: ScalingConfig, channel: Any) -> None:
        self._scaling, self._channel = scaling, channel
        self._refreshed_at = float("-inf")
        self._reservation: Reservation | None = None
        self._group: Any = None

    def after_controller_start(self, train_run_context: Any) -> None:
        """Ray asks for the resources of the run in its own callback, which comes first."""
        self._reservation = Reservation(train_run_context.run_id)

    def after_worker_group_start(self, worker_group: Any) -> None:
        """These are the workers to stop."""
        self._group = worker_group

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """There are none."""
        self._group = None

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        """Keep what Ray plans with from being up to 20 seconds old, and it from asking for room without a pause."""
        if current_state is previous_state:
            time.sleep(_WAITING_INTERVAL)
        interval = _REFRESH_INTERVAL if self._is_running() else _WAITING_INTERVAL
        if self._reservation is not None and time.monotonic() - self._refreshed_at >= interval:
            self._refreshed_at = time.monotonic()
            self._reservation.refresh()

    def before_controller_execute_resize_decision(self, resize_decision: Any) -> None:
        """Change the decision to the workers that there is room for; wait until there is some, and no worker runs."""
        if self._is_running():
            count = f"{len(self._group.get_workers())} to {resize_decision.num_workers}"
            self._channel.ask_to_stop.remote(f"a change from {count} workers", True)
            while self._is_running():
                time.sleep(0.2)
                self._group.poll_status(timeout=1.0)
        while (num_workers := self._room()) < self._scaling.min_workers:
            time.sleep(_WAITING_INTERVAL)
        if num_workers != resize_decision.num_workers:
            _log.info("%d workers, and not %d: nodes were lost or came", num_workers, resize_decision.num_workers)
        resize_decision.num_workers = num_workers

    def _is_running(self) -> bool:
        status = None if self._group is None else self._group.get_latest_poll_status()
        return status is not None and not status.errors and not status.finished

    def _room(self) -> int:
        assert self._reservation is not None
        try:
            reserved = self._reservation.read(seconds=_ANSWER_SECONDS)
        except RayError:  # busy; asked again
            return 0
        usable = usable_nodes()[0]
        return room({node: resources for node, resources in reserved.items() if node in usable}, self._scaling)
