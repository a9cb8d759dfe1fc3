"""What Ray Train's controller does when nodes or workers are lost: scaling, errors, clean-up.

Ray declares a node dead when some of its health checks have failed, after 15 seconds or more, and plans with it until
then. These callbacks ask the nodes themselves, by a connection to their raylets.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.train import ControllerError, ScalingConfig, TrainingFailedError, UserCallback, WorkerGroupError
from ray.util.placement_group import PlacementGroup, get_current_placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenfree.core.errors import JobError, StoppedError, UserError
from tokenfree.core.machine import answers
from tokenfree.train.loop.worker import Stopped
from tokenfree.train.ray.internals import ControllerCallback, Reservation, WorkerGroupCallback, draining_nodes
from tokenfree.train.runs.metrics import Line
from tokenfree.train.runs.run import Run

_INTERVAL = 0.5  # seconds between two looks at the controller


class CleanerCallback(ControllerCallback, WorkerGroupCallback):
    """Starts a `Cleaner` beside Ray Train's controller, in which it lives, and tells it of the workers.

    Ray has a cleaner of its own, which asks the State API whether the controller lives. That needs a dashboard, of
    140 MB, and beside a second cluster on the machine it was seen to destroy a healthy group of workers. A cluster of
    the command's own names no State API in its environment (see train/ray/cluster.py), so Ray's cleaner gives up.
    """

    _cleaner: Any = None

    def after_controller_start(self, train_run_context: Any) -> None:
        """Start it where the controller is."""
        context = ray.get_runtime_context()
        here = NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False)
        actor_class: Any = ray.remote(num_cpus=0)(Cleaner)
        self._cleaner = actor_class.options(lifetime="detached", scheduling_strategy=here).remote(context.current_actor)

    def after_worker_group_start(self, worker_group: Any) -> None:
        """Tell it what to free."""
        self._cleaner.guard.remote(worker_group.execute_single(0, get_current_placement_group))

    async def before_controller_shutdown(self) -> None:
        """End it."""
        ray.kill(self._cleaner)


class Cleaner:
    """An actor that outlives the controller; it then removes the placement group of the workers, and ends."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self._group: PlacementGroup | None = None
        threading.Thread(target=self._watch, name="cleaner", daemon=True).start()

    def guard(self, group: PlacementGroup) -> None:
        """What to remove, in place of what there was before."""
        self._group = group

    def _watch(self) -> None:
        myself = ray.get_runtime_context().current_actor
        ended = threading.Event()
        while not ended.wait(_INTERVAL):
            try:
                ray.get(self._controller.__ray_ready__.remote(), timeout=_INTERVAL)
            except GetTimeoutError:
                continue  # busy, not dead
            except RayActorError:
                ended.set()
        with contextlib.suppress(RayError):  # the cluster is going down
            if self._group is not None:
                remove_placement_group(self._group)
            ray.kill(myself)


class Cause(NamedTuple):
    """What an error that came out of Ray is about."""

    error: BaseException | None  # None: workers were lost, and none said why
    rank: int | None = None  # of the worker that raised it; None: it was no worker of Ray Train

    @property
    def first_line(self) -> str:
        """The first line of the error's message; its kind where there is none."""
        return next(iter(str(self.error).strip().splitlines()), type(self.error).__name__)


def unwrap(error: BaseException) -> Cause:
    """The error inside those that Ray wraps around it: of several workers, the first one's own (see `own_errors`)."""
    inner = error.controller_failure if isinstance(error, ControllerError) else error
    if isinstance(inner, (WorkerGroupError, GaveUp)):
        causes = [Cause(own, rank) for rank, own in own_errors(inner.worker_failures).items()]
        return causes[0] if causes else Cause(None)
    while isinstance(inner, RayTaskError) and isinstance(inner.cause, BaseException):
        inner = inner.cause
    return Cause(inner)


def explain(error: TrainingFailedError, run: Run, folder: str) -> UserError | JobError:
    """An error of Ray Train as the user should read it; details go to `folder` of the run."""
    cause = unwrap(error)
    if cause.error is None:
        return JobError(
            f"workers were lost too often (train.max_restarts); see {run.name}/{folder}, look for a lack of memory, "
            "and run the same command again: it goes on from the newest checkpoint"
        )
    if cause.rank is None:
        return JobError(f"Ray could not run the workers: {cause.first_line}; see the logs in {run.name}/{folder}")
    who = f"worker {cause.rank}" + (f" on {node}" if (node := node_of(cause.error)) else "")
    if isinstance(cause.error, WorkerFailure):
        details = f"{folder}/error.txt"
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
            file.write(cause.error.details)
            file.flush()
            run.keep(Path(file.name), details)
        return JobError(f"{who} failed: {cause.error}; its traceback is in {run.name}/{details}")
    kind = next((kind for kind in (UserError, StoppedError) if isinstance(cause.error, kind)), JobError)
    return kind(f"{who}: {cause.error}")


def is_of_collective(error: Exception) -> bool:
    """Whether the error came from a broken connection to another worker (Gloo raises plain RuntimeErrors)."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "Gloo", "NCCL", "TCPStore"))


class GaveUp(Exception):
    """Raised in Ray's controller to end the run: for errors that workers raised by themselves, by rank; or for none,
    where workers were lost too often.
    """

    def __init__(self, worker_failures: dict[int, Exception]) -> None:
        super().__init__(worker_failures)
        self.worker_failures = worker_failures


class LostPeer(RuntimeError):
    """A collective operation failed because another worker is gone: no fault of this one's."""


class WorkerFailure(JobError):
    """An error that nobody expected in a worker: its kind and message, and its traceback."""

    def __init__(self, summary: str, details: str) -> None:
        super().__init__(summary, details)
        self.summary, self.details = summary, details

    def __str__(self) -> str:
        return self.summary


def with_node(error: JobError | UserError) -> JobError | UserError:
    """`error` of this worker, with the address of its node where there are several."""
    if len(ray.nodes()) > 1:
        vars(error)["node"] = ray.util.get_node_ip_address()
    return error


def node_of(error: BaseException) -> str | None:
    """The address that `with_node` added, None where it did not."""
    return vars(error).get("node")


def own_errors(failures: Mapping[int, Exception]) -> dict[int, Exception]:
    """The errors that workers raised by themselves, by rank: neither their loss nor the consequence of another's."""
    return {
        rank: error
        for rank, error in sorted(failures.items())
        if type(error).__module__.partition(".")[0] != "ray"
        and not isinstance(error, LostPeer)
        and not (isinstance(error, Stopped) and error.goes_on)
    }


class LossCallback(UserCallback):
    """Ends the run by raising `GaveUp` at an error of a worker's own, which would come again, and at one loss too many;
    writes other losses to the events of the run. Ray then starts the workers again, as often as it takes.

    Args:
        run, owner: see `Run`.
        channel: of the run, see train/ray/driver.py.
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
    return Run(run, owner).add_event("worker_lost", ranks=ranks, message=message)


_SECONDS = 0.5  # for a node to accept a connection, which its kernel does, however busy the node is
_PROBE_INTERVAL = 0.5  # between looks at the nodes of running workers
_PROBES = 4  # in which a node must be silent to be given up
_FRESH = 1.0  # for what was seen of the nodes
_REFRESH_INTERVAL = 5.0  # between two looks for room while workers run
_WAITING_INTERVAL = 0.5  # and while none do
_ANSWER_SECONDS = 5.0  # for Ray to say what room there is
_NODE_ID = "ray.io/node-id"
_log = logging.getLogger("ray.train")


def answering_nodes() -> tuple[set[str], set[str]]:
    """The ids of the nodes that accept connections, and of those that Ray still takes for alive but do not."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    with ThreadPoolExecutor(max(1, min(32, len(nodes)))) as pool:
        addresses = [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in nodes]
        answered = list(pool.map(functools.partial(answers, seconds=_SECONDS), addresses))
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

    `channel` is the run's (see train/ray/driver.py).
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
