"""Callbacks for Ray Train's controller: scaling, and errors when nodes or workers are lost.

Ray declares a node dead after several failed health checks, which takes 15 seconds or more. Until then it plans with
the node. These callbacks check nodes themselves, by connecting to their raylets.
"""

import collections
import functools
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.train import ControllerError, ScalingConfig, TrainingFailedError, WorkerGroupError

from tokenfree.core.errors import JobError, StoppedError, UserError, first_line
from tokenfree.core.machine import answers
from tokenfree.train.loop.worker import Stopped
from tokenfree.train.ray.internals import ControllerCallback, Reservation, WorkerGroupCallback, draining_nodes
from tokenfree.train.runs.run import Run


class Cause(NamedTuple):
    error: BaseException | None  # None: workers were lost without an error
    rank: int | None = None  # rank of the worker that raised it; None: not a worker of Ray Train


def unwrap(error: BaseException) -> Cause:
    """Return the error inside those that Ray wraps around it; if several workers failed, the first of `own_errors`."""
    inner = error.controller_failure if isinstance(error, ControllerError) else error
    if isinstance(inner, (WorkerGroupError, GaveUp)):
        causes = [Cause(own, rank) for rank, own in own_errors(inner.worker_failures).items()]
        return causes[0] if causes else Cause(None)
    while isinstance(inner, RayTaskError) and isinstance(inner.cause, BaseException):
        inner = inner.cause
    return Cause(inner)


def explain(error: TrainingFailedError, run: Run, folder: str) -> UserError | JobError:
    """Return an error of Ray Train as a message for the user. Details are written to `folder` of the run."""
    cause = unwrap(error)
    if cause.error is None:
        return JobError(
            f"workers were lost too often (train.max_restarts); see {run.name}/{folder}, look for a lack of memory, "
            "and run the same command again: it resumes from the newest checkpoint"
        )
    if cause.rank is None:
        return JobError(
            f"Ray could not run the workers: {first_line(cause.error)}; see the logs in {run.name}/{folder}"
        )
    message = f"worker {cause.rank}: {cause.error}"
    if isinstance(cause.error, StoppedError):
        return StoppedError(message, reason=cause.error.reason)
    return UserError(message) if isinstance(cause.error, UserError) else JobError(message)


def is_of_collective(error: Exception) -> bool:
    """Return True if the error comes from a broken connection to another worker. Gloo raises plain RuntimeErrors."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "Gloo", "NCCL", "TCPStore"))


class GaveUp(Exception):
    """Raised in Ray's controller to end the run, with the errors of workers by rank; none after too many losses."""

    def __init__(self, worker_failures: dict[int, Exception]) -> None:
        super().__init__(worker_failures)
        self.worker_failures = worker_failures


class LostPeer(RuntimeError):
    """Raised when a collective operation fails because another worker is lost."""


def own_errors(failures: Mapping[int, Exception]) -> dict[int, Exception]:
    """Return the errors that workers raised themselves, by rank, without losses and the failures that these cause."""
    return {
        rank: error
        for rank, error in sorted(failures.items())
        if type(error).__module__.partition(".")[0] != "ray"
        and not isinstance(error, LostPeer)
        and not (isinstance(error, Stopped) and error.resumes)
    }


class LossCallback(WorkerGroupCallback):
    """A callback that ends the run or records an event when workers fail. Ray restarts workers without limit.

    It raises `GaveUp` if a worker raised an error itself, which would recur, or after `most` losses. Stops with a
    checkpoint are not counted. Workers are asked to stop before their node is drained and removed.
    """

    def __init__(self, run: str, owner: str | None, channel: Any, most: int) -> None:
        self._run, self._owner, self._channel, self._left = run, owner, channel, most
        self._reported = self._noticed = False

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._reported = self._noticed = False

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        info = worker_group_status.get_preemption_info()
        if info is not None and not self._noticed:
            self._noticed = True
            self._channel.ask_to_stop.remote(f"the coming end of node {', '.join(info.preempted_node_ids)}", True)
        if worker_group_status.errors:
            self._report(worker_group_status.errors)

    def _report(self, worker_exceptions: dict[int, Exception]) -> None:
        """Report who was lost or stopped. While a node goes down, Ray repeats this call with the same errors."""
        own = own_errors(worker_exceptions)
        if own:
            raise GaveUp(own)
        if self._reported:
            return
        self._reported = True
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
        line = Run(self._run, self._owner).add_event("worker_lost", ranks=ranks, message=message)
        ray.get(self._channel.post.remote([line]))


_SECONDS = 0.5  # timeout for a connection to a node; its kernel accepts, so a busy node answers too
_PROBE_INTERVAL = 0.5  # seconds between checks of the nodes of running workers
_PROBES = 4  # consecutive failed checks after which a node is given up
_REFRESH_INTERVAL = 5.0  # seconds between refreshes of the resources while workers run
_WAITING_INTERVAL = 0.5  # the same while no workers run
_ANSWER_SECONDS = 5.0  # timeout for Ray to report the resources
_NODE_ID = "ray.io/node-id"
_log = logging.getLogger("ray.train")


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


def room(reserved: dict[str, dict[str, float]], scaling: ScalingConfig) -> int:
    per_worker: Any = scaling.resources_per_worker
    needs = {name: amount for name, amount in per_worker.items() if amount}
    fit = (min(int(there.get(name, 0) // amount) for name, amount in needs.items()) for there in reserved.values())
    return min(sum(fit), scaling.max_workers)


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
        self._silences = collections.Counter[str]()  # number of consecutive failed checks of a node

    def on_controller_start_worker_group(self, *, scaling_config: Any, num_workers: int) -> dict[str, str] | None:
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


class ResizeCallback(GroupCallback):
    """A callback that fits the number of workers to the room on nodes that answer. Running workers stop first."""

    def __init__(self, scaling: ScalingConfig, channel: Any) -> None:
        self._scaling, self._channel = scaling, channel
        self._refreshed_at = float("-inf")
        self._reservation: Reservation | None = None

    def after_controller_start(self, train_run_context: Any) -> None:
        """Open the reservation. Ray requests the resources in its own callback, which runs first."""
        self._reservation = Reservation(train_run_context.run_id)

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        """Refresh the resources that Ray plans with, which could be 20 seconds old. Pause while Ray waits for room."""
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
            _log.info("%d workers, and not %d: nodes were lost or came", num_workers, resize_decision.num_workers)
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
        return room({node: resources for node, resources in reserved.items() if node in usable}, self._scaling)
