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
from urllib.error import URLError

import pytest
from apache_beam.runners.portability import prism_runner
from apache_beam.runners.portability.prism_runner import PrismJobServer
from apache_beam.utils import subprocess_server
from apache_beam.utils.subprocess_server import JavaJarServer

from tests.conftest import REPOSITORY
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.workflows.cli import main


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
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(("127.0.0.1", port), 1),
            ):
                break
            assert process.poll() is None, f"{module} ended with status {process.returncode}"
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def test_the_portable_job_server_changes_no_byte(
    made: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Callable[[Path], dict[str, bytes]],
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
        run_preprocess(make_config(corpus), str(tmp_path / "out"), runner="beam", beam_options=options)
    assert read_shards(tmp_path / "out") == read_shards(made)
    assert load_manifest(str(tmp_path / "out")).fingerprint == load_manifest(str(made)).fingerprint


@pytest.mark.parametrize(
    ("runner", "option"),
    [("prism", "prism_location"), ("flink", "flink_job_server_jar"), ("spark", "spark_job_server_jar")],
)
def test_download_errors_name_the_option_of_a_local_file(
    runner: str,
    option: str,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def open_nothing(request: Any) -> Any:
        raise URLError("Network is unreachable")

    monkeypatch.setattr(prism_runner, "urlopen", open_nothing)
    monkeypatch.setattr(subprocess_server, "urlopen", open_nothing)
    monkeypatch.setattr(PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(JavaJarServer, "JAR_CACHE", str(tmp_path / "cache"))
    output = str(tmp_path / "out")
    assert main(["preprocess", "--books", str(corpus), "--output", output, "--runner", runner]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "Network is unreachable" in line
    assert line.endswith(f"and name the file: -- --{option}=FILE")
