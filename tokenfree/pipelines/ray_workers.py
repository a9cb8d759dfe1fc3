"""Processes of a Ray cluster that work for a Beam runner: an actor each, which Ray ends with the command that began it.

Ray is imported here and nowhere else in `pipelines`, and this file only where a job is to run on Ray.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import grpc
import ray
from ray.exceptions import RayError, RayTaskError

from tokenfree.preprocess.common.errors import JobError, TakenOverError, UserError
from tokenfree.preprocess.job.preprocess_job import PreprocessJob
from tokenfree.preprocess.records.input_split import InputSplit

_ADDRESS = "RAY_ADDRESS"
_REACH_SECONDS = 5.0
_SETTLE_SECONDS = 3.0  # until Ray knows of what has just ended, such as the workers of a command that was killed
_ROOM_SECONDS = 600.0  # for the first worker: an autoscaler may have to start a machine
_START_SECONDS = 120.0  # for the others that have room
_GRACE_SECONDS = 30.0  # between two workers for which there was no room at first
_LOOK_SECONDS = 0.5
_FAILURES = 5  # of workers that end while they start
_ALIVE_SECONDS = 2.0  # for a node to answer


class Worker:
    """An actor: it looks whether it sees the files of a job, and serves a runner until that has no more work."""

    def __init__(self) -> None:
        from apache_beam.runners.worker import sdk_worker

        self._harness = sdk_worker.SdkHarness
        # Errors of a step reach the runner, which raises them.
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)

    def node(self) -> tuple[str, str]:
        """The id and the address of its node."""
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    def missing(self, job: PreprocessJob, paths: Sequence[str]) -> str | None:
        """Which of these, or the output on a disk, this node does not see; None where it sees all."""
        storage = job.storage
        if storage.is_local:
            try:
                storage.check()
            except TakenOverError:
                return storage.url
        return next((path for path in paths if not os.path.exists(path)), None)

    def serve(self, address: str, worker_id: str) -> None:
        """Do the steps that come from the runner at HOST:PORT, which knows the worker by its id.

        Raises:
            JobError: nothing answers there.
        """
        try:
            harness = self._harness(address, worker_id=worker_id)
        except grpc.FutureTimeoutError:
            here = ray.util.get_node_ip_address()
            raise JobError(
                f"the Ray node {here} does not reach the command at {address}; open all ports between the machines of "
                "the cluster to each other"
            ) from None
        harness.run()


def check_cluster() -> None:
    """See that there is a cluster to join.

    Raises:
        UserError: none is named, or none answers.
    """
    if ray.is_initialized():
        return
    named = os.environ.get(_ADDRESS)
    if not named:
        raise UserError(
            f"--runner ray: no Ray cluster is named; set {_ADDRESS}=HOST:PORT on a machine of it, or use tokenfree "
            "cluster submit -- preprocess ... --runner ray"
        )
    host, _, port = named.rpartition(":")
    if not host or not port.isdigit():  # such as `auto`
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
    except OSError as error:  # Ray itself would wait for minutes
        raise UserError(f"--runner ray: nothing answers at {_ADDRESS}={named} ({error.strerror or error})") from None


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """The cluster that this process is connected to, or that of RAY_ADDRESS, which is left at the end.

    Raises:
        JobError: it cannot be joined.
    """
    joined = ray.is_initialized()
    if not joined:
        check_cluster()
        terminate = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=os.environ[_ADDRESS], logging_level=logging.ERROR, log_to_driver=False)
        except Exception as error:  # Ray raises plain exceptions here
            said = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise JobError(
                f"the Ray cluster at {_ADDRESS}={os.environ[_ADDRESS]} could not be joined: {said}"
            ) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate or signal.SIG_DFL)  # Ray's handler writes a stack
    try:
        yield Cluster()
    finally:
        if not joined:
            ray.shutdown()


class Cluster:
    """What Ray tells of its nodes.

    Attributes:
        address: of the node of this process, which the others reach.
    """

    def __init__(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        self.address: str = next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == here)
        until = time.monotonic() + _SETTLE_SECONDS
        self._busy = self._used()
        while self._busy and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
            self._busy = min(self._busy, self._used())

    def room(self) -> int:
        """For how many workers there are CPUs that nothing else had when the command began, at least one."""
        return max(1, self._cpus() - self._busy)

    def lives(self, node: str) -> bool:
        """Whether the node of this id is there; Ray itself takes its time to notice that one is not."""
        for each in ray.nodes():
            if each["NodeID"] == node and each["Alive"]:
                with contextlib.suppress(OSError):
                    address = each["NodeManagerAddress"], each["NodeManagerPort"]
                    socket.create_connection(address, timeout=_ALIVE_SECONDS).close()
                    return True
        return False

    def _used(self) -> int:
        return max(0, self._cpus() - int(ray.available_resources().get("CPU", 0)))

    def _cpus(self) -> int:
        return sum(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])


class Workers:
    """Workers of one attempt, of one CPU each, spread over the nodes; `end` ends them.

    Args:
        cluster: where they are.
        number: of them; 0 for as many as there is room for.
        patient: whether to wait a while for those that have no room yet.

    Raises:
        JobError: there is room for none, or none could be started.
    """

    def __init__(self, cluster: Cluster, number: int, *, patient: bool) -> None:
        self._cluster = cluster
        self._actors: list[Any] = []
        self._nodes: list[tuple[str, str]] = []
        self._serving: dict[Any, int] = {}
        try:
            self._start(number, patient)
        except BaseException:
            self.end()
            raise

    def __len__(self) -> int:
        return len(self._nodes)

    def check(self, job: PreprocessJob) -> None:
        """See that all of them see what the job reads and writes.

        Raises:
            UserError: one does not.
        """
        splits = [InputSplit.from_json(line) for line in job.split_lines()]
        read = {path for split in splits for path in split.inputs} | {job.config.vocabulary.model or ""}
        asked = [actor.missing.remote(job, sorted(filter(os.path.exists, read))) for actor in self._actors]
        try:
            answers: list[str | None] = ray.get(asked)
        except RayTaskError as error:
            if isinstance(error.cause, (UserError, JobError)):
                raise error.cause from error
            raise
        except RayError:  # one is lost already, as will be noticed
            return
        for missing, (_, address) in zip(answers, self._nodes, strict=True):
            if missing is not None:
                raise UserError(
                    f"{missing}: the Ray node {address} does not see it; give an address such as s3://bucket/data, or "
                    "the whole path in a folder that all nodes have mounted"
                )

    def serve(self, index: int, address: str, worker_id: str) -> None:
        """Have one serve the runner at this address."""
        self._serving[self._actors[index].serve.remote(address, worker_id)] = index

    def ended(self) -> set[int]:
        """The numbers of those that do not serve any more."""
        return {self._serving[future] for future in self._done()}

    def told(self, lost: Iterable[int]) -> list[str]:
        """What the loss of these means, a line for each node."""
        nodes = Counter(self._nodes[index] for index in lost)
        return [_told(address, count, self._cluster.lives(node)) for (node, address), count in sorted(nodes.items())]

    def check_reach(self) -> None:
        """See that none ended because it did not reach the runner.

        Raises:
            JobError: one did.
        """
        for future in self._done():
            try:
                ray.get(future)
            except RayTaskError as error:
                if isinstance(error.cause, JobError):
                    raise error.cause from error
            except RayError:
                continue

    def end(self) -> None:
        """End them, at whatever they are."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def _done(self) -> list[Any]:
        serving = list(self._serving)
        return ray.wait(serving, num_returns=len(serving), timeout=0)[0] if serving else []

    def _start(self, number: int, patient: bool) -> None:
        actor_class: Any = ray.remote(num_cpus=1)(Worker)  # which Ray starts once and calls once at a time
        asked: dict[Any, Any] = {}
        ready: dict[Any, tuple[str, str]] = {}
        failures = 0
        begin = last = time.monotonic()
        while True:
            room = self._cluster.room()
            while len(asked) + len(ready) < (number or room):
                actor = actor_class.options(scheduling_strategy="SPREAD").remote()
                self._actors.append(actor)
                asked[actor.node.remote()] = actor
            done, _ = ray.wait(list(asked), num_returns=1, timeout=_LOOK_SECONDS)
            for future in done:
                actor = asked.pop(future)
                try:
                    ready[actor] = ray.get(future)
                    last = time.monotonic()
                except RayError as error:  # another one is asked for
                    failures += 1
                    if failures > _FAILURES:
                        said = [line.strip() for line in str(error).splitlines() if line.strip()]
                        raise JobError(f"--runner ray: a worker could not be started: {said[-1]}") from error
            now = time.monotonic()
            if _is_enough(len(ready), number, room, since_begin=now - begin, since_last=now - last, patient=patient):
                break
            if not ready and now - begin > _ROOM_SECONDS:
                raise JobError("--runner ray: no CPU of the Ray cluster became free; see ray status")
        for actor in set(self._actors) - set(ready):
            ray.kill(actor)
        self._actors, self._nodes = list(ready), list(ready.values())


def _is_enough(ready: int, number: int, room: int, *, since_begin: float, since_last: float, patient: bool) -> bool:
    """Whether to begin with those that are ready, of a `number` (0: of as many as there is room for)."""
    wanted = number or room
    if ready >= wanted:
        return True
    if ready >= min(wanted, room):
        return not patient or since_last > _GRACE_SECONDS
    return ready > 0 and since_begin > _START_SECONDS and since_last > _GRACE_SECONDS


def _told(address: str, count: int, lives: bool) -> str:
    workers = "a worker" if count == 1 else f"{count} workers"
    if lives:
        return f"{workers} on {address} died (out of memory?); starting again from what is committed"
    return f"the Ray node {address} was lost with {workers}; starting again on the others from what is committed"
