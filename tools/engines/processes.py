"""Processes of an engine. Each leads a process group, which is killed as a whole, and has a log file."""

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

from tools import REPOSITORY

SECONDS_TO_START = 180.0
POOL = "worker-pool"


class EngineProcess:
    """A running program called `name`, whose output goes to `folder`/`name`.log."""

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
        """Send a signal to the process and to all that it started, and wait until it ends."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        self.process.wait(30)

    def await_port(self, port: int, address: str = "localhost") -> None:
        """Wait until the process listens on a port.

        Raises:
            RuntimeError: The process ended, or did not listen in time. The message contains the end of its
                log.
        """
        began = time.monotonic()
        while self.process.poll() is None and time.monotonic() - began < SECONDS_TO_START:
            with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
                return
            time.sleep(0.1)
        end = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(
            f"{self.name} does not listen on port {port} (status {self.process.poll()}): {end}"
        )


def free_ports(number: int) -> list[int]:
    """Return unused ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def worker_pool(number: int, port: int, folder: Path) -> EngineProcess:
    """Start the pool of Beam workers of a host (see `pool_host`)."""
    address = _address(number)
    command = [
        sys.executable,
        "-m",
        "tokenfree.pipelines.worker_pool",
        "--port",
        str(port),
        "--address",
        address,
    ]
    pool = EngineProcess(
        f"pool-{number}", command, folder, {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    )
    pool.await_port(port, address)
    return pool


def pool_host(number: int, folder: Path) -> dict[str, str]:
    """Return an environment in which Java resolves `POOL` to the address of the worker pool with this number.

    Each task manager needs its own pool, as if it were alone on its host, but all get the same options.
    """
    hosts = folder / f"hosts-{number}"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {socket.gethostname()}\n{_address(number)} {POOL}\n")
    return {"JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}"}


def _address(number: int) -> str:
    return f"127.0.7.{number}"
