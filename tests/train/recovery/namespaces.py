"""Machines that are network namespaces of this one, joined by a bridge, with a Ray node in each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RAY = str(Path(sys.executable).with_name("ray"))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def permitted() -> bool:
    """Whether namespaces and network devices can be made here."""
    if os.geteuid() != 0:
        return False
    try:
        run("ip", "netns", "add", f"tf{os.getpid()}")
        run("ip", "netns", "del", f"tf{os.getpid()}")
        run("unshare", "-pfmn", "--mount-proc", "true")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


class Network:
    """Machines 1, 2, ... with the addresses 10.99.0.1, 10.99.0.2, ...; the first has the head of the cluster."""

    def __init__(self, folder: Path) -> None:
        self.env = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_DISABLE_IMPORT_WARNING": "1"}
        self._id = f"tf{os.getpid() % 100_000}"
        self._temp = f"/tmp/{self._id}"  # short: sockets have paths of at most 107 characters
        self._logs = folder
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._made: list[int] = []
        run("ip", "link", "add", self._id, "type", "bridge")
        run("ip", "link", "set", self._id, "up")

    def add_machine(self, number: int) -> None:
        name = self._name(number)
        run("ip", "netns", "add", name)
        self._made.append(number)
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", name, "master", self._id, "up")
        run("ip", "-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")

    def start_node(self, number: int, num_cpus: int) -> None:
        """Start Ray on a machine, whose processes see only each other; those of the head are seen by all."""
        where = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={self._temp}"]
        command = [RAY, "start", f"--node-ip-address=10.99.0.{number}", f"--num-cpus={num_cpus}", "--block"]
        command += ["--object-store-memory=100000000", *(where if number == 1 else ["--address=10.99.0.1:6379"])]
        apart = ["unshare", "-pfm", "--kill-child", "--mount-proc", "sh", "-c"]
        own = f'mkdir -p {self._temp} && mount -t tmpfs tmpfs {self._temp} && exec "$@"'
        if number != 1:
            command = [*apart, own, "sh", *command]
        with (self._logs / f"node_{number}.txt").open("wb") as log:
            self._nodes[number] = subprocess.Popen(
                self.inside(number, command), env=self.env, stdout=log, stderr=log, start_new_session=True
            )

    def inside(self, number: int, command: list[str]) -> list[str]:
        """`command` as it runs on a machine."""
        return ["ip", "netns", "exec", self._name(number), *command]

    def power_off(self, number: int) -> None:
        """End all processes of a machine at once, and its network."""
        self.unplug(number)
        node = self._nodes.pop(number)
        node.kill()
        node.wait()

    def unplug(self, number: int) -> None:
        """Cut a machine off: what it sends and what is sent to it is lost, and nobody is told."""
        run("ip", "link", "set", self._name(number), "down")

    def plug_in(self, number: int) -> None:
        run("ip", "link", "set", self._name(number), "up")

    def wait_for_nodes(self, count: int, seconds: float = 90) -> None:
        """Wait until the cluster has so many nodes."""
        program = (
            f"import ray; ray.init(address='10.99.0.1:6379', log_to_driver=False); print(len(ray.nodes()), {count})"
        )
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
        for number in self._made:
            pids = subprocess.run(["ip", "netns", "pids", self._name(number)], capture_output=True, text=True).stdout
            for pid in pids.split():
                os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "del", self._name(number))
        run("ip", "link", "del", self._id)
        subprocess.run(["rm", "-rf", self._temp], check=False)

    def _name(self, number: int) -> str:
        return f"{self._id}n{number}"
