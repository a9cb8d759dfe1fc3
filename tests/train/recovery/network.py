"""Machines that are network namespaces of this one, joined by a bridge, with a Ray node in each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.namespaces import Namespaces, permitted

RAY = str(Path(sys.executable).with_name("ray"))


class Network(Namespaces):
    """Machines 1, 2, ... with the addresses 10.99.0.1, 10.99.0.2, ...; the first has the head of the cluster."""

    def __init__(self, folder: Path) -> None:
        super().__init__("tf", "10.99.0")
        self.env = {**os.environ, "HOME": str(folder), "RAY_DISABLE_IMPORT_WARNING": "1"}  # without a token
        self.temp = f"/tmp/{self.bridge}"  # short: sockets have paths of at most 107 characters
        self.head = f"{self.address(1)}:6379"
        self._logs = folder
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}

    def start_node(self, number: int, num_cpus: int, *options: str, first: str = "true") -> None:
        """Start Ray on a machine, whose processes see only each other; those of the head are seen by all.

        Args:
            number: of the machine.
            num_cpus: that it has.
            options: of `ray start`.
            first: what a shell does before, on a machine whose folder of Ray, `temp`, is its own; not on the
                head.
        """
        where = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={self.temp}"]
        command = [
            RAY,
            "start",
            f"--node-ip-address={self.address(number)}",
            f"--num-cpus={num_cpus}",
            "--block",
        ]
        command += [
            "--object-store-memory=100000000",
            *options,
            *(where if number == 1 else [f"--address={self.head}"]),
        ]
        apart = ["unshare", "-pfm", "--kill-child", "--mount-proc", "sh", "-c"]
        own = f'mkdir -p {self.temp} && mount -t tmpfs tmpfs {self.temp} && {first} && exec "$@"'
        if number != 1:
            command = [*apart, own, "sh", *command]
        with (self._logs / f"node_{number}.txt").open("wb") as log:
            self._nodes[number] = subprocess.Popen(
                self.inside(number, command), env=self.env, stdout=log, stderr=log, start_new_session=True
            )

    def inside(self, number: int, command: list[str]) -> list[str]:
        """`command` as it runs on a machine."""
        return ["ip", "netns", "exec", self.name(number), *command]

    def power_off(self, number: int) -> None:
        """End all processes of a machine at once, and its network."""
        self.unplug(number)
        node = self._nodes.pop(number)
        node.kill()
        node.wait()

    def wait_for_nodes(self, count: int, seconds: float = 90) -> None:
        """Wait until the cluster has this number of nodes."""
        program = f"import ray; ray.init(address='{self.head}', log_to_driver=False); print(len(ray.nodes()), {count})"
        until, said = time.monotonic() + seconds, ""
        while said.split() != [str(count)] * 2:
            assert time.monotonic() < until, said
            time.sleep(1)
            asked: Any = subprocess.run(
                self.inside(1, [sys.executable, "-c", program]), env=self.env, capture_output=True, text=True
            )
            said = asked.stdout

    def close(self) -> None:
        for number in sorted(self._nodes, reverse=True):
            os.killpg(self._nodes[number].pid, signal.SIGTERM if number == 1 else signal.SIGKILL)
            self._nodes[number].wait()
        super().close()
        subprocess.run(["rm", "-rf", self.temp], check=False)


@contextlib.contextmanager
def network_in(folder: Path) -> Iterator[Network]:
    """One without machines for a `with` block, its logs in `folder`; where none can be made, the test is skipped."""
    if not permitted():
        pytest.skip("network namespaces need root and the program ip")
    made = Network(folder)
    try:
        yield made
    finally:
        made.close()
