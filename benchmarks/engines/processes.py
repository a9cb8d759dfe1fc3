"""Processes of an engine: each leads a group of its own, so that what it started dies with it, and has a log file."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS_TO_START = 180.0
POOL = "worker-pool"


class EngineProcess:
    """A program with the name `name`, whose output is in `folder`/`name`.log."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def signal(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process and to all that it started, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        self.process.wait(30)

    def await_port(self, port: int, address: str = "localhost") -> None:
        """Wait until the process listens.

        Raises:
            RuntimeError: it ended, or took too long; with the end of its log.
        """
        began = time.monotonic()
        while self.process.poll() is None and time.monotonic() - began < SECONDS_TO_START:
            with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
                return
            time.sleep(0.1)
        end = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} does not listen on port {port} (status {self.process.poll()}): {end}")


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def worker_pool(number: int, port: int, folder: Path) -> EngineProcess:
    """The pool of Beam workers of a host (see `pool_host`)."""
    root = Path(__file__).resolve().parents[2]
    address = _address(number)
    command = [sys.executable, "-m", "tokenfree.pipelines.worker_pool", "--port", str(port), "--address", address]
    pool = EngineProcess(f"pool-{number}", command, folder, {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"})
    pool.await_port(port, address)
    return pool


def pool_host(number: int, folder: Path) -> dict[str, str]:
    """The environment in which Java finds the pool of that number under the name `POOL`, as if it were alone on its
    host: each task manager needs a pool of its own, and all get the same options."""
    hosts = folder / f"hosts-{number}"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {socket.gethostname()}\n{_address(number)} {POOL}\n")
    return {"JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}"}


def _address(number: int) -> str:
    return f"127.0.7.{number}"
