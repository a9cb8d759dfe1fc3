"""The same bytes through the portable job server of Beam, with the workers in a pool of their own (EXTERNAL)."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.dataset.manifest import load_manifest


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def server(module: str, option: str) -> Iterator[int]:
    """A service in a process of its own, once it listens; the port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", module, option, str(port)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, f"{module} ended with status {process.returncode}"
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def test_the_portable_job_server_changes_no_byte(
    made: Path, corpus: Path, tmp_path: Path, make_config: Any, read_shards: Callable[[Path], dict[str, bytes]]
) -> None:
    with (
        server("apache_beam.runners.portability.local_job_service_main", "--job_port") as job_port,
        server("tokenfree.pipelines.worker_pool", "--port") as pool_port,
    ):
        options = [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{job_port}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool_port}",
        ]
        run_preprocess(make_config(corpus), str(tmp_path / "out"), beam_options=options)
    assert read_shards(tmp_path / "out") == read_shards(made)
    assert load_manifest(str(tmp_path / "out")).fingerprint == load_manifest(str(made)).fingerprint
