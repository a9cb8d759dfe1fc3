"""A Ray cluster of several nodes on this machine, at most one per user, from `ray start` processes.

All its processes are found by a mark in their environment, even those that lost their parent.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import cache_folder, write_atomically
from tokenfree.core.machine import cores
from tokenfree.core.ray_access import session_folder

LOOPBACK = "127.0.0.1"
_MARK = "TOKENFREE_LOCAL_CLUSTER"
_STARTED = "Ray runtime started"  # printed by `ray start`
_START_SECONDS, _END_SECONDS = 180.0, 15.0
_OBJECT_STORE = 100_000_000  # bytes per node
_HEALTH = {  # a disconnected node counts as lost after 15 seconds; by Ray's defaults after 65
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
}
# Name another cluster.
_OTHER_CLUSTERS = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR")


@dataclasses.dataclass(frozen=True)
class LocalCluster:
    """A local cluster. `address` is that of its dashboard, and the first of `nodes` is the head."""

    mark: str
    folder: str
    address: str
    nodes: Sequence[str]

    def processes(self) -> list[psutil.Process]:
        alive = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def log(self, number: int) -> Path:
        return Path(self.folder) / f"node_{number}.txt"


def running() -> LocalCluster | None:
    try:
        cluster = LocalCluster(**json.loads(_state().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return cluster if cluster.processes() else None


def start(nodes: int, cpus: int | None, *, hosts: Sequence[str] = ()) -> LocalCluster:
    """Start a local cluster, and wait until its nodes are up. A failure leaves nothing behind.

    Each node has `cpus`, by default an equal share of this machine's. `hosts` are network namespaces
    (`ip netns`), one per node; without them all nodes use 127.0.0.1. Raises UserError if a local cluster is
    running already, and JobError if a node did not start.
    """
    existing = running()
    if existing is not None:
        raise UserError(
            f"a local cluster runs already, at {existing.address}; tokenfree cluster down local ends it"
        )
    addresses = [_address(host) for host in hosts] or [LOOPBACK] * nodes
    cpus_per_node = cpus or max(1, cores() // len(addresses))
    cluster = LocalCluster(
        secrets.token_hex(8), session_folder(), f"http://{LOOPBACK}:{_free_port(8265)}", addresses
    )
    # Before it has processes, so that it can be taken down from now on.
    _state().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(_state(), json.dumps(dataclasses.asdict(cluster)))
    try:
        _start_nodes(cluster, cpus_per_node, hosts)
    except BaseException:
        stop(cluster)
        raise
    return cluster


def stop(cluster: LocalCluster) -> None:
    """End all processes of a local cluster, including jobs, and remove its files."""
    for process in cluster.processes():
        with contextlib.suppress(psutil.Error):
            # `ray start`, which ends its child processes.
            if "--block" in process.cmdline():
                process.terminate()
    until = time.monotonic() + _END_SECONDS
    while (left := cluster.processes()) and time.monotonic() < until:
        time.sleep(0.2)
    # Processes started meanwhile are found in the next round.
    while left:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.1)
        left = cluster.processes()
    shutil.rmtree(cluster.folder, ignore_errors=True)
    if is_current(cluster):
        _state().unlink(missing_ok=True)


def is_current(cluster: LocalCluster) -> bool:
    """Return False if another command has taken the cluster down."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(_state().read_text(encoding="utf-8"))["mark"] == cluster.mark
    return False


def _start_nodes(cluster: LocalCluster, cpus: int, hosts: Sequence[str]) -> None:
    port = _free_port()
    head = [
        *("--head", f"--port={port}", f"--ray-client-server-port={_free_port()}", "--include-dashboard=true"),
        *(f"--dashboard-host={LOOPBACK}", f"--dashboard-port={cluster.address.rpartition(':')[2]}"),
    ]
    for number, address in enumerate(cluster.nodes):
        node = [
            *([f"--address={cluster.nodes[0]}:{port}"] if number else head),
            f"--node-ip-address={address}",
            f"--labels=tokenfree.node={number}",
            f"--num-cpus={cpus}",
        ]
        _wait(cluster, number, _start_node(cluster, number, node, host=hosts[number] if hosts else None))


def _start_node(
    cluster: LocalCluster, number: int, arguments: list[str], *, host: str | None
) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_CLUSTERS}
    environment |= {
        **_HEALTH,
        _MARK: cluster.mark,
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
    )
    if host is None:
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        program = [sys.executable, "-P", "-m", "tokenfree.train.ray.loopback_node"]
    else:
        program = ["ip", "netns", "exec", host, sys.executable, "-P", "-m", "ray.scripts.scripts"]
    node_options = [
        f"--temp-dir={cluster.folder}/{number}",
        f"--object-store-memory={_OBJECT_STORE}",
        "--num-gpus=0",
    ]
    with cluster.log(number).open("wb") as log:
        return subprocess.Popen(
            [*program, "start", *arguments, *node_options, "--disable-usage-stats", "--block"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C reaches only the command that started it
        )


def _wait(cluster: LocalCluster, number: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while _STARTED not in (text := cluster.log(number).read_text(encoding="utf-8", errors="replace")):
        if process.poll() is not None or time.monotonic() > until:
            lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
            raise JobError(
                f"node {number} of the local cluster did not start: {lines[-1]}. Run the same command again, with "
                "fewer --nodes if the machine is busy."
            )
        time.sleep(0.1)


def _address(host: str) -> str:
    asked = subprocess.run(["ip", "-n", host, "-j", "-4", "addr"], capture_output=True, text=True)
    if asked.returncode:
        raise UserError(
            f"--hosts {host}: {asked.stderr.strip() or 'no such network namespace'} (ip netns list)"
        )
    for link in json.loads(asked.stdout):
        for address in link.get("addr_info", ()):
            if address.get("scope") == "global":
                return address["local"]
    raise UserError(
        f"--hosts {host}: this network namespace has no address; give its device one with ip addr add"
    )


def _free_port(preferred: int = 0) -> int:
    with socket.socket() as free:
        try:
            free.bind((LOOPBACK, preferred))
        except OSError:
            free.bind((LOOPBACK, 0))
        return free.getsockname()[1]


def _state() -> Path:
    return cache_folder() / "cluster" / "local.json"
