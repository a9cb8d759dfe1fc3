"""Worker processes of the embedded runner that are ours: silent, and whose death is noticed at any moment.

In its own multi_processing mode the runner starts Beam's worker module, which writes dozens of lines to the terminal,
and waits for ever for a process that dies before it has connected.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms import environments

URN = "tokenfree:env:worker_process:v1"
SECONDS_BETWEEN_ABORTS = 0.5
# Beam registers both by decorators that hide from type checkers that they are classes.
_Environment: Any = environments.SubprocessSDKEnvironment
_Handler: Any = worker_handlers.SubprocessSdkWorkerHandler
_THREADS = ("beam_", "read_grpc")  # how the names of Beam's threads that read begin
_LOST_CONNECTION = "Channel closed prematurely"  # what the runner says of a process that was connected


class DeadWorkerError(RuntimeError):
    """A worker process is gone, and with it what it had not committed."""


def is_dead_worker(error: Exception) -> bool:
    """Whether a pipeline failed because a worker process died."""
    return isinstance(error, DeadWorkerError) or _LOST_CONNECTION in str(error)


class ProcessRunner(FnApiRunner):
    """Beam's embedded runner with worker processes of ours, reached from this machine alone.

    Beam listens on all interfaces, and one of its services hands out any file of the machine.
    """

    def __init__(self) -> None:
        command = f"exec {shlex.quote(sys.executable)} -m tokenfree.pipelines.direct_worker {os.getpid()}"
        super().__init__(default_environment=_WorkerProcessEnvironment.from_command_string(command))

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions) -> Any:
        """See Beam's.

        Raises:
            DeadWorkerError: a worker process died.
        """
        with _on_loopback():
            return super().run_pipeline(pipeline, options)


@contextlib.contextmanager
def silent_streams() -> Iterator[None]:
    """In the block Beam's threads that read from a worker end without a traceback where it dies: that is told by us."""
    before = threading.excepthook

    def hook(told: threading.ExceptHookArgs) -> None:
        if not (isinstance(told.exc_value, grpc.RpcError) and told.thread and told.thread.name.startswith(_THREADS)):
            before(told)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """In the block servers of gRPC that would listen on all interfaces listen on 127.0.0.1."""
    before = grpc.server

    def server(*arguments: Any, **options: Any) -> Any:
        made: Any = before(*arguments, **options)
        add = made.add_insecure_port
        made.add_insecure_port = lambda address: add(address.replace("[::]:", "127.0.0.1:"))
        return made

    grpc.server = server
    try:
        yield
    finally:
        grpc.server = before


class _WorkerProcessEnvironment(_Environment):
    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return URN, self.command_string.encode()


class _WorkerProcessHandler(_Handler):
    def start_worker(self) -> None:
        self.stopped = threading.Event()
        self.worker = local_job_service.SubprocessSdkWorker(
            self._worker_command_line, self.control_address, self.provision_info, self.worker_id
        )
        self.worker_thread = threading.Thread(name="run_worker", target=self._serve, daemon=True)
        self.worker_thread.start()

    def stop_worker(self) -> None:
        self.stopped.set()
        super().stop_worker()

    def _serve(self) -> None:
        try:
            self.worker.run()
        except RuntimeError as error:  # the process ended before it was told to
            # The runner may be waiting for results or for data, or hand it more work later, hence again and again.
            while not self.stopped.wait(SECONDS_BETWEEN_ABORTS):
                with contextlib.suppress(Exception):  # of connections that are broken anyway
                    self.control_conn.abort(DeadWorkerError(str(error)))
                    self.data_conn.close()


# Beam finds both classes by the name of the environment; nobody else uses this name.
_register: Any = environments.Environment.register_urn
_register(URN, bytes, _WorkerProcessEnvironment)
worker_handlers.WorkerHandler.register_environment(URN, bytes)(_WorkerProcessHandler)
