"""The embedded runner with workers on a Ray cluster: the command leads, Ray's processes do the steps.

The runner is that of one machine but for two things of ours: its workers are actors (see ray_workers.py), and it
listens on one port of the address that its Ray node has, for these workers alone. Beam's own server listens on all
addresses, and hands out any file of the machine to whoever asks.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.worker.data_plane import BeamFnDataServicer
from apache_beam.transforms import environments
from apache_beam.utils import thread_pool_executor

from tokenfree.pipelines import ray_workers
from tokenfree.pipelines.direct_runner import SECONDS_BETWEEN_ABORTS, DeadWorkerError
from tokenfree.preprocess.job.preprocess_job import PreprocessJob

URN = "tokenfree:env:ray_worker:v1"
_LOST = "a worker on the Ray cluster was lost"
_CLOSE_SECONDS = 1.0
_LOOK_SECONDS = 0.3  # between two looks for workers that are lost
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
    with ray_workers.cluster() as cluster:
        runner = RayRunner(cluster, job, notice)
        yield lambda options: Pipeline(runner, options)


class RayRunner(FnApiRunner):
    """Beam's embedded runner, which runs each pipeline with new workers.

    Args:
        cluster: where they are.
        job: that they work for.
        notice: told in a line of each node on which workers are lost.
    """

    def __init__(self, cluster: ray_workers.Cluster, job: PreprocessJob, notice: Callable[[str], None]) -> None:
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
        workers = ray_workers.Workers(self._cluster, number, patient=not self._has_begun)
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

    def __init__(self, workers: ray_workers.Workers, address: str) -> None:
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
        while not done.wait(_LOOK_SECONDS):
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
