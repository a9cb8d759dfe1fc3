"""Network namespaces of this machine that stand in for machines of their own, on one network."""

import os
import signal
import subprocess


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


class Namespaces:
    """Namespaces 1, 2, ... joined by a bridge, with the addresses PREFIX.1, PREFIX.2, ...

    Args:
        kind: two letters, with which their names begin.
        prefix: three numbers, such as 10.99.0.
    """

    def __init__(self, kind: str, prefix: str) -> None:
        self.bridge = f"{kind}{os.getpid() % 100_000}"
        self._prefix = prefix
        self._made: list[int] = []
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "link", "set", self.bridge, "up")

    def name(self, number: int) -> str:
        return f"{self.bridge}n{number}"

    def address(self, number: int) -> str:
        return f"{self._prefix}.{number}"

    def add(self, number: int) -> None:
        """A namespace that is on the network."""
        name = self.name(number)
        run("ip", "netns", "add", name)
        self._made.append(number)
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", name, "master", self.bridge, "up")
        run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            run("ip", "-n", name, "link", "set", device, "up")

    def unplug(self, number: int) -> None:
        """Cut one off: what it sends and what is sent to it is lost silently."""
        run("ip", "link", "set", self.name(number), "down")

    def plug_in(self, number: int) -> None:
        run("ip", "link", "set", self.name(number), "up")

    def close(self) -> None:
        """End all processes in them, and the network."""
        for number in self._made:
            pids = subprocess.run(
                ["ip", "netns", "pids", self.name(number)], capture_output=True, text=True
            ).stdout
            for pid in pids.split():
                os.kill(int(pid), signal.SIGKILL)
            run("ip", "link", "del", self.name(number))  # else it stays until the last process is reaped
            run("ip", "netns", "del", self.name(number))
        run("ip", "link", "del", self.bridge)
