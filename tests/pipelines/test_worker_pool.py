"""The pool of Beam workers: who reaches it, and that its workers end with it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2

from tests.conftest import REPOSITORY
from tests.pipelines.beam.test_portable import free_port

COMMAND = [sys.executable, "-m", "tokenfree.pipelines.worker_pool", "--port"]


@pytest.fixture
def pool() -> Iterator[tuple[psutil.Popen, int]]:
    """A running pool, and its port."""
    port = free_port()
    process = psutil.Popen([*COMMAND, str(port)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == f"listening on 127.0.0.1:{port}\n"
    yield process, port
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def test_it_listens_on_loopback_alone(pool: tuple[psutil.Popen, int]) -> None:
    process, _ = pool
    assert {
        c.laddr.ip.removeprefix("::ffff:")
        for c in process.net_connections()
        if c.status == psutil.CONN_LISTEN
    } == {"127.0.0.1"}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_its_workers_run_in_its_environment_and_end_with_it(
    pool: tuple[psutil.Popen, int], end: signal.Signals
) -> None:
    process, port = pool
    with socket.socket() as engine:  # which never answers
        engine.bind(("127.0.0.1", 0))
        engine.listen()
        control = endpoints_pb2.ApiServiceDescriptor(url=f"127.0.0.1:{engine.getsockname()[1]}")
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
        stub.StartWorker(
            beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1", control_endpoint=control), timeout=60
        )
        (worker,) = process.children()
        assert worker.exe() == psutil.Process().exe()
        assert worker.environ()["PYTHONPATH"].split(os.pathsep)[0] == str(REPOSITORY)
        assert worker.environ()["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
        process.send_signal(end)
        assert process.wait(60) == 0
    began = time.monotonic()
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE and time.monotonic() - began < 30:
        time.sleep(0.1)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_a_port_that_is_taken_is_named(pool: tuple[psutil.Popen, int]) -> None:
    _, port = pool
    done = subprocess.run([*COMMAND, str(port)], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}: cannot be listened on; is another pool there?" in done.stderr
