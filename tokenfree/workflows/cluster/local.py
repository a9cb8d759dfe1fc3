"""A rehearsal: a Ray cluster of several nodes on this machine, of `ray start` processes as on machines of their own.

Its processes have a mark in their environment, by which all of them are found again, whoever started them and whatever
became of it. There is at most one for a user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import folder as cache_folder
from tokenfree.core.files import write_atomically
from tokenfree.core.machine import cores

LOOPBACK = "127.0.0.1"
_MARK = "TOKENFREE_REHEARSAL"
_STARTED = "Ray runtime started"  # what `ray start` prints
_GAVE_UP = "timed out during startup"  # what it prints where the machine is so busy that 30 seconds are not enough
_START_SECONDS, _END_SECONDS = 180.0, 15.0
_ATTEMPTS = 3
_OBJECT_STORE = 100_000_000  # bytes of each node
_HEALTH = {  # a node that is cut off is known to be lost after 15 seconds, by Ray's own settings after 65
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
}
_OUR_OWN = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR")  # that name another cluster


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """What is known of one.

    Attributes:
        mark: in the environment of its processes.
        folder: of its nodes' temporary files and logs.
        address: of its dashboard, which takes jobs.
        nodes: the addresses of the nodes, the head's first.
    """

    mark: str
    folder: str
    address: str
    nodes: Sequence[str]

    def processes(self) -> list[psutil.Process]:
        """All processes of it that live."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def log(self, number: int) -> Path:
        """What `ray start` of a node printed."""
        return Path(self.folder) / f"node_{number}.txt"


def running() -> Rehearsal | None:
    """The rehearsal of this user, None where there is none."""
    try:
        found = Rehearsal(**json.loads(_state().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if found.processes() else None


def start(nodes: int, cpus: int | None, *, hosts: Sequence[str] = (), dashboard: str = LOOPBACK) -> Rehearsal:
    """Start one, and wait until its nodes are up. Whatever goes wrong, nothing of it is left.

    Args:
        nodes: with the head.
        cpus: of each node; by default this machine's shared out among them, and one at least.
        hosts: names of network namespaces (`ip netns`), a node in each; without them all nodes are at 127.0.0.1.
        dashboard: the address that the dashboard listens on, which takes jobs.

    Raises:
        UserError: there is one already.
        JobError: a node did not start.
    """
    before = running()
    if before is not None:
        raise UserError(f"a rehearsal runs already, at {before.address}; tokenfree cluster down local ends it")
    addresses = [_address(host) for host in hosts] or [LOOPBACK] * nodes
    each = cpus or max(1, cores() // len(addresses))
    for attempts_left in reversed(range(_ATTEMPTS)):
        made = _named(addresses, dashboard)
        try:
            _start_nodes(made, each, hosts)
            return made
        except _Busy:
            stop(made)
            if not attempts_left:
                raise
        except BaseException:
            stop(made)
            raise
    raise AssertionError


def stop(rehearsal: Rehearsal) -> None:
    """End all of its processes, jobs too, and remove its files."""
    for process in rehearsal.processes():
        with contextlib.suppress(psutil.Error):
            if "--block" in process.cmdline():  # `ray start`, which ends what it started
                process.terminate()
    until = time.monotonic() + _END_SECONDS
    while (left := rehearsal.processes()) and time.monotonic() < until:
        time.sleep(0.2)
    while left:  # what is started meanwhile is found the next time
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.1)
        left = rehearsal.processes()
    shutil.rmtree(rehearsal.folder, ignore_errors=True)
    if is_current(rehearsal):
        _state().unlink(missing_ok=True)


def is_current(rehearsal: Rehearsal) -> bool:
    """Whether it has not been taken down by another command."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(_state().read_text(encoding="utf-8"))["mark"] == rehearsal.mark
    return False


class _Busy(JobError):
    """Ray gave a node up that was only slow."""


def _named(addresses: Sequence[str], dashboard: str) -> Rehearsal:
    """A rehearsal that can be taken down from now on, and has no processes yet."""
    made = Rehearsal(
        secrets.token_hex(8),
        tempfile.mkdtemp(prefix="tf-", dir=os.environ.get("RAY_TMPDIR", "/tmp")),  # sockets have paths of 107 bytes
        f"http://{dashboard}:{_free_port(8265)}",
        addresses,
    )
    _state().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(_state(), json.dumps(dataclasses.asdict(made)))
    return made


def _start_nodes(made: Rehearsal, cpus: int, hosts: Sequence[str]) -> None:
    """One after the other, the head first."""
    dashboard, port = urlsplit(made.address), _free_port()
    head = [
        *("--head", f"--port={port}", f"--ray-client-server-port={_free_port()}", "--include-dashboard=true"),
        *(f"--dashboard-host={dashboard.hostname}", f"--dashboard-port={dashboard.port}"),
    ]
    for number, address in enumerate(made.nodes):
        where = [f"--address={made.nodes[0]}:{port}"] if number else head
        node = [*where, f"--node-ip-address={address}", f"--labels=tokenfree.node={number}", f"--num-cpus={cpus}"]
        _wait(made, number, _start_node(made, number, node, host=hosts[number] if hosts else None))


def _start_node(made: Rehearsal, number: int, arguments: list[str], *, host: str | None) -> subprocess.Popen[bytes]:
    """A node as a process; in the network namespace `host`, or kept to 127.0.0.1."""
    environment = {name: value for name, value in os.environ.items() if name not in _OUR_OWN}
    environment |= {**_HEALTH, _MARK: made.mark, "RAY_DISABLE_IMPORT_WARNING": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    if host is None:
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        program = [sys.executable, "-P", "-m", "tokenfree.train.ray.loopback_node"]
    else:
        program = ["ip", "netns", "exec", host, sys.executable, "-P", "-m", "ray.scripts.scripts"]
    own = [f"--temp-dir={made.folder}/{number}", f"--object-store-memory={_OBJECT_STORE}", "--num-gpus=0"]
    with made.log(number).open("wb") as log:
        return subprocess.Popen(
            [*program, "start", *arguments, *own, "--disable-usage-stats", "--block"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the command that started it
        )


def _wait(made: Rehearsal, number: int, process: subprocess.Popen[bytes]) -> None:
    """Until this node is up. Raises JobError where it is not."""
    until = time.monotonic() + _START_SECONDS
    while _STARTED not in (said := made.log(number).read_text(encoding="utf-8", errors="replace")):
        if process.poll() is not None or time.monotonic() > until:
            lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
            raise (_Busy if _GAVE_UP in said else JobError)(
                f"node {number} of the rehearsal did not start: {lines[-1]}"
            )
        time.sleep(0.1)


def _address(host: str) -> str:
    """The address of a network namespace. Raises UserError where it has none."""
    asked = subprocess.run(["ip", "-n", host, "-j", "-4", "addr"], capture_output=True, text=True)
    if asked.returncode:
        raise UserError(f"--hosts {host}: {asked.stderr.strip() or 'no such network namespace'} (ip netns list)")
    for link in json.loads(asked.stdout):
        for address in link.get("addr_info", ()):
            if address.get("scope") == "global":
                return address["local"]
    raise UserError(f"--hosts {host}: this network namespace has no address; give its device one with ip addr add")


def _free_port(wanted: int = 0) -> int:
    """A port of this machine that nobody listens on, `wanted` if it is one."""
    with socket.socket() as free:
        try:
            free.bind((LOOPBACK, wanted))
        except OSError:
            free.bind((LOOPBACK, 0))
        return free.getsockname()[1]


def _state() -> Path:
    return cache_folder() / "cluster" / "local.json"
