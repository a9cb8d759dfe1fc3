"""How many workers, and on which nodes: policies for Ray Train's controller that see the loss of a node at once.

Ray declares a node dead when some of its health checks have failed, after 15 seconds or more, and plans with it until
then. These policies ask the nodes themselves, by a connection to their raylets.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray._private.state import state as ray_state
from ray.exceptions import RayError
from ray.train import ScalingConfig
from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ResizeDecision, ScalingDecision
from ray.train.v2._internal.execution.scaling_policy.elastic import ElasticScalingPolicy
from ray.train.v2._internal.execution.scaling_policy.fixed import FixedScalingPolicy

_SECONDS = 1.0  # for a node to accept a connection
_PROBE_INTERVAL = 2.0  # between looks at the nodes of running workers
_PROBES = 3  # in which a node must be silent to be given up
_SIOCGIFADDR = 0x8915  # of Linux: the address of an interface
_NODE_ID = "ray.io/node-id"
_log = logging.getLogger("ray.train")


def answering_nodes() -> tuple[set[str], set[str]]:
    """The ids of the nodes that accept connections, and of those that Ray still takes for alive but do not."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    with ThreadPoolExecutor(max(1, min(32, len(nodes)))) as pool:
        answers = list(pool.map(_answers, nodes))
    ids = {node["NodeID"] for node, answered in zip(nodes, answers, strict=True) if answered}
    return ids, {node["NodeID"] for node in nodes} - ids


def usable_nodes() -> tuple[set[str], set[str]]:
    """The ids of the nodes on which workers can be started, and of the others that Ray takes for alive."""
    answering, silent = answering_nodes()
    draining = answering & set(ray_state.get_draining_nodes())  # Ray starts nothing there any more
    return answering - draining, silent | draining


def _answers(node: dict[str, Any]) -> bool:
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), timeout=_SECONDS).close()
    except OSError:
        return False
    return True


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has this IPv4 address; None where it cannot be told (macOS)."""
    if ":" in address:
        return None
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                if fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, name.encode().ljust(256, b"\0"))[20:24] == wanted:
                    return name
    return None


class _OnAnsweringNodes:
    """For scaling policies: workers of nodes that do not answer any more are ended, and none are started there."""

    _probed_at = float("-inf")
    _silences = collections.Counter[str]()  # in how many probes in a row a node was silent

    def on_controller_start_worker_group(self, *, scaling_config: Any, num_workers: int) -> dict[str, str] | None:
        """The node labels that Ray is to choose by: None where all nodes can be used."""
        usable, others = usable_nodes()
        if not others:
            return None
        _log.info("Nodes that do not answer or are being drained: %s", ", ".join(sorted(others)))
        return {_NODE_ID: f"in({','.join(sorted(usable))})"}

    def _end_workers_of_silent_nodes(self, worker_group_state: Any) -> None:
        """A node without a network ends no connection; its workers' peers would wait for half an hour."""
        if time.monotonic() - self._probed_at < _PROBE_INTERVAL:
            return
        silent = answering_nodes()[1]
        self._silences = collections.Counter({node: self._silences[node] + 1 for node in silent})
        self._probed_at = time.monotonic()
        for worker in worker_group_state.workers:
            if self._silences[worker.metadata.node_id] >= _PROBES:
                _log.warning("Node %s does not answer; its workers are given up", worker.metadata.node_id)
                ray.kill(worker.actor)


class FixedPolicy(_OnAnsweringNodes, FixedScalingPolicy):
    """Always the same number of workers; waits until there is room for them."""

    def make_decision_for_running_worker_group(
        self, worker_group_state: Any, worker_group_status: Any
    ) -> ScalingDecision:
        """Ray's own decision, once the workers of nodes that went silent are ended."""
        self._end_workers_of_silent_nodes(worker_group_state)
        return super().make_decision_for_running_worker_group(worker_group_state, worker_group_status)


class ElasticPolicy(_OnAnsweringNodes, ElasticScalingPolicy):
    """As many workers as there is room for; to take more, the workers are stopped with a checkpoint first.

    `channel` is the run's (see train/ray/channel.py).
    """

    def __init__(self, scaling_config: ScalingConfig, channel: Any) -> None:
        super().__init__(scaling_config)
        self._channel = channel

    def make_decision_for_running_worker_group(
        self, worker_group_state: Any, worker_group_status: Any
    ) -> ScalingDecision:
        """None at once: a resize is asked of the workers, who stop with a checkpoint and are started again."""
        self._end_workers_of_silent_nodes(worker_group_state)
        decision = super().make_decision_for_running_worker_group(worker_group_state, worker_group_status)
        if isinstance(decision, ResizeDecision):
            count = f"{worker_group_state.num_workers} to {decision.num_workers}"
            self._channel.ask_to_stop.remote(f"a change from {count} workers", True)
        return NoopDecision()

    def _get_reserved_resources(self) -> Any:
        """What Ray has put aside for this run, seen afresh: its own view is up to 20 seconds old."""
        try:
            reserved: Any = ray.get(
                self._autoscaling_coordinator.get_reserved_resources.remote(self._requester_id, recompute=True),
                timeout=5,
            )
        except RayError:  # busy; asked again
            return None
        usable = usable_nodes()[0]
        return {node: resources for node, resources in reserved.items() if node in usable}
