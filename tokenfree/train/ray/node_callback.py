"""A callback of Ray Train's controller that avoids nodes that do not answer."""

import collections
import functools
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from tokenfree.core.ray_access import answers
from tokenfree.train.ray.internals import ControllerCallback, WorkerGroupCallback, draining_nodes

_log = logging.getLogger("ray.train")


_SECONDS = 0.5  # timeout for a connection to a node; its kernel accepts, so a busy node answers too
_PROBE_INTERVAL = 0.5  # seconds between checks of the nodes of running workers
# Consecutive failed checks after which a node is given up.
_PROBES = 4
_NODE_ID = "ray.io/node-id"


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
