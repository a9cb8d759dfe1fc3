"""Beam's embedded runner with its workers on a Ray cluster.

It differs from the runner of one machine in two ways. Its workers are actors, and it listens on one port of the address
of its Ray node, for these workers only. Beam's own server listens on all addresses and serves any file of the machine.
No other file of `pipelines` imports Ray, and this file is imported only for jobs on Ray.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import grpc
import ray
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.worker.data_plane import BeamFnDataServicer
from apache_beam.transforms import environments
from apache_beam.utils import thread_pool_executor
from ray.exceptions import RayError, RayTaskError

from tokenfree.core.errors import JobError, TakenOverError, UserError
from tokenfree.pipelines.direct_runner import SECONDS_BETWEEN_ABORTS, DeadWorkerError
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.records import InputSplit

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
def joined_cluster() -> Iterator[Cluster]:
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


URN = "tokenfree:env:ray_worker:v1"
_LOST = "a worker on the Ray cluster was lost"
_CLOSE_SECONDS = 1.0
_LOST_WORKER_SECONDS = 0.3  # between two looks for workers that are lost
_CHANNEL = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Workers ping as often as they like, and are pinged: a machine that is cut off ends no connection by itself.
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.so_reuseport", 0),
)
# Beam's decorators hide from type checkers that these are classes.
_Environment: Any = environments.SubprocessSDKEnvironment
_Handler: Any = worker_handlers.GrpcWorkerHandler
_handlers: Any = worker_handlers


@contextlib.contextmanager
def ray_pipelines(job: PreprocessJob, notice: Callable[[str], None]) -> Iterator[Callable[[PipelineOptions], Pipeline]]:
    """Makes pipelines for attempts at the job, whose steps run on the cluster; `notice` is told of what is lost.

    Raises:
        UserError: no cluster is named, or none answers.
        JobError: it cannot be joined.
    """
    with joined_cluster() as cluster:
        runner = RayRunner(cluster, job, notice)
        yield lambda options: Pipeline(runner, options)


class RayRunner(FnApiRunner):
    """Beam's embedded runner, which runs each pipeline with new workers.

    Args:
        cluster: where they are.
        job: that they work for.
        notice: told in a line of each node on which workers are lost.
    """

    def __init__(self, cluster: Cluster, job: PreprocessJob, notice: Callable[[str], None]) -> None:
        super().__init__(default_environment=_RayEnvironment.from_command_string(""))
        self._cluster, self._job, self._notice = cluster, job, notice
        self._has_begun = False

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions) -> Any:
        """See Beam's.

        Raises:
            DeadWorkerError: a worker was lost.
            UserError: a worker does not see the files of the job.
            JobError: no worker could be started, or reach this process.
        """
        direct = options.view_as(DirectOptions)
        number, direct.direct_running_mode = direct.direct_num_workers, "in_memory"  # takes the given environment
        workers = Workers(self._cluster, number, patient=not self._has_begun)
        if len(workers) < number and not self._has_begun:
            self._notice(f"the Ray cluster has room for {len(workers)} of {number} workers: begins with these")
        self._has_begun = True
        try:
            workers.check(self._job)
            direct.direct_num_workers = len(workers)
            attempt = _Attempt(workers, self._cluster.address)
            try:
                with attempt.watched(), _served_by(attempt):
                    return super().run_pipeline(pipeline, options)
            except Exception as error:
                if not attempt.lost:
                    raise
                workers.check_reach()
                for line in workers.told(attempt.lost):
                    self._notice(line)
                raise DeadWorkerError(_LOST) from error
        finally:
            workers.end()


class _Attempt:
    """What server and handlers of one pipeline share.

    Attributes:
        handlers: of the workers, in their order.
        lost: the numbers of the workers that ended without being told to.
        closing: whether they are told to.
    """

    def __init__(self, workers: Workers, address: str) -> None:
        self.workers, self.address = workers, address
        self.handlers: list[Any] = []
        self.lost: set[int] = set()
        self.closing = False

    def is_known(self, worker_id: str | None) -> bool:
        """Whether a worker has this id."""
        return any(handler.worker_id == worker_id for handler in self.handlers)

    def note_end(self, worker_id: str) -> None:
        """A stream of this worker has ended."""
        if not self.closing:
            self.lost |= {number for number, each in enumerate(self.handlers) if each.worker_id == worker_id}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """In the block the runner hears of a loss at once, whichever worker it is waiting for."""
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(done,), name="ray workers", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, done: threading.Event) -> None:
        """Workers whose machine is switched off are told of by their streams, those of one that is cut off by Ray."""
        while not done.wait(_LOST_WORKER_SECONDS):
            ended = self.workers.ended()
            if self.closing:
                return
            self.lost |= ended
            if self.lost:
                break
        # What is lost with it is noted by now. The runner may hand out more work later, hence again and again.
        while not done.wait(SECONDS_BETWEEN_ABORTS):
            for handler in list(self.handlers):
                with contextlib.suppress(Exception):  # of connections that are broken anyway
                    handler.control_conn.abort(DeadWorkerError(_LOST))
                    handler.data_conn.close()


@contextlib.contextmanager
def _served_by(attempt: _Attempt) -> Iterator[None]:
    """In the block Beam makes our server in place of its own, which it finds by name."""
    before = _handlers.GrpcServer
    _handlers.GrpcServer = lambda state, provision_info, manager: _Server(attempt, state, manager)
    try:
        yield
    finally:
        _handlers.GrpcServer = before


class _Server:
    """Of control, data and state, on one port; what a handler uses of Beam's `GrpcServer`."""

    def __init__(self, attempt: _Attempt, state: Any, manager: Any) -> None:
        self.attempt = attempt
        self.control_handler = _Control(manager, attempt)
        self.data_plane_handler = BeamFnDataServicer(worker_handlers.DATA_BUFFER_TIME_LIMIT_MS)
        pool: Any = thread_pool_executor.shared_unbounded_instance()
        self._server = grpc.server(pool, interceptors=[_KnownWorkers(attempt)], options=_CHANNEL)
        services.add_BeamFnControlServicer_to_server(self.control_handler, self._server)
        services.add_BeamFnDataServicer_to_server(self.data_plane_handler, self._server)
        services.add_BeamFnStateServicer_to_server(worker_handlers.GrpcStateServicer(state), self._server)
        host = f"[{attempt.address}]" if ":" in attempt.address else attempt.address
        port = self._server.add_insecure_port(f"{host}:0")
        self.control_port = self.data_port = self.state_port = self.logging_port = port
        self._server.start()

    def close(self) -> None:
        """End it."""
        self.control_handler.done()
        self._server.stop(_CLOSE_SECONDS).wait()


class _KnownWorkers(grpc.ServerInterceptor):
    """Refuses the streams of whoever does not have the id of a worker."""

    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """See gRPC."""
        given = dict(handler_call_details.invocation_metadata).get("worker_id")
        # Beam asks for a description without the id: see `_Control`.
        if self._attempt.is_known(given) or handler_call_details.method.endswith("/GetProcessBundleDescriptor"):
            return continuation(handler_call_details)
        return grpc.stream_stream_rpc_method_handler(lambda _, context: _refuse(context))


class _Control(worker_handlers.BeamFnControlServicer):
    """Beam's, which hears of the end of a worker, and describes steps to connections of workers alone."""

    def __init__(self, manager: Any, attempt: _Attempt) -> None:
        super().__init__(manager)
        self._attempt = attempt
        self._peers: set[str] = set()

    def Control(self, iterator: Any, context: Any) -> Any:
        """See Beam's."""
        self._peers.add(context.peer())
        worker_id = dict(context.invocation_metadata())["worker_id"]
        context.add_callback(lambda: self._attempt.note_end(worker_id))
        return super().Control(iterator, context)

    def GetProcessBundleDescriptor(self, id: Any, context: Any = None) -> Any:
        """See Beam's."""
        if context.peer() not in self._peers:
            _refuse(context)
        return super().GetProcessBundleDescriptor(id, context)


def _refuse(context: Any) -> None:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "no worker of this job")


class _RayEnvironment(_Environment):
    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return URN, b""


class _RayWorkerHandler(_Handler):
    def __init__(self, payload: bytes, state: Any, provision_info: Any, grpc_server: _Server) -> None:
        self._attempt = grpc_server.attempt
        super().__init__(state, provision_info, grpc_server)
        # Beam counts its workers; this id is what the server knows them by.
        self.worker_id = secrets.token_hex(16)
        self.control_conn = grpc_server.control_handler.get_conn_by_worker_id(self.worker_id)
        self.data_conn = grpc_server.data_plane_handler.get_conn_by_worker_id(self.worker_id)

    def start_worker(self) -> None:
        index = len(self._attempt.handlers)
        self._attempt.handlers.append(self)
        self._attempt.workers.serve(index, self.control_address, self.worker_id)

    def close(self) -> None:
        self._attempt.closing = True
        super().close()

    def stop_worker(self) -> None:
        pass  # it ends with its stream, or with the attempt

    def host_from_worker(self) -> str:
        address = self._attempt.address
        return f"[{address}]" if ":" in address else address


# Beam finds both classes by the name of the environment; nobody else uses this name.
_register: Any = environments.Environment.register_urn
_register(URN, bytes, _RayEnvironment)
worker_handlers.WorkerHandler.register_environment(URN, bytes)(_RayWorkerHandler)
