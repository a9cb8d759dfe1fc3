"""Checks of the nodes of a Ray cluster. Each node reports its facts, which are compared with this machine."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec
import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenfree.core.errors import UserError
from tokenfree.core.machine import GIB
from tokenfree.core.storage import check_address
from tokenfree.train.ray.cluster import ray_environment, ray_session
from tokenfree.workflows.doctor.machine import HEAD, Finding, NodeFacts, NodeProbe, versions

ANSWER_SECONDS = 120.0  # for a node to start a process and to report
_CLOCKS = 5  # number of requests to a clock; the fastest answer is the most precise
MOST_SKEW = 2.0  # seconds
LEAST_DISK, LEAST_SHARED, LEAST_FILES = 2 * GIB, GIB // 2, 4096
_REMEDIES = {
    "versions": "install the same versions everywhere: one image, or pip install -r requirements.lock on each node",
    "clock": "have the clocks set by NTP (chrony, systemd-timesyncd): stores refuse requests of clocks that are off",
    "free disk": "make room where Ray keeps its files, or start the node with --temp-dir on a larger disk",
    "/dev/shm": "start the container with --shm-size=2g, else Ray keeps objects in slow files",
    "open files": "ulimit -n 65536 before ray start, LimitNOFILE of its service, or --ulimit nofile of the container",
    "gpu": "install the driver, or a torch that is built for the CUDA of the driver; then start the node again",
    "storage": "give an address that all nodes reach, with the right to write, such as s3://bucket/runs, or mount it",
}


@dataclass(frozen=True)
class Node:
    """A node and its answer.

    Attributes:
        name: Address of the node.
        gpus: Number of its GPUs that Ray counts.
        skew: Seconds by which its clock is at least ahead of this one; negative if behind.
        facts: What the node reports, or None if it does not answer.
        error: Reason for no answer, in one line.
    """

    name: str
    gpus: float = 0.0
    skew: float = 0.0
    facts: NodeFacts | None = None
    error: str = ""


def cluster_findings(folders: Sequence[str]) -> Iterator[Finding]:
    """Check each node of the cluster of RAY_ADDRESS. All of them must read and write the addresses `folders`.

    Folders that this machine cannot write to are skipped here; `machine.storage` reports them.

    Raises:
        UserError: No cluster is named.
        JobError: The cluster does not answer.
    """
    if "RAY_ADDRESS" not in os.environ and not ray.is_initialized():
        raise UserError(
            "--cluster: no Ray cluster is named; set RAY_ADDRESS=HOST:PORT on one of its machines, or let it be asked "
            "there: tokenfree cluster submit -- doctor --cluster --storage s3://bucket/runs"
        )
    token = uuid.uuid4().hex.encode()
    made = {f"{folder.rstrip('/')}/.doctor-{uuid.uuid4().hex}": folder for folder in folders}
    with contextlib.ExitStack() as stack:
        here = {name: folder for name, folder in made.items() if _is_left(name, token, stack)}
        stack.enter_context(ray_environment())
        stack.enter_context(ray_session())
        nodes = ask(list(here), token)
        yield Finding("ok", "nodes", str(len(nodes)))
        yield from judged(nodes, here, versions())


def ask(folders: Sequence[str], token: bytes) -> list[Node]:
    """Return the answers of the nodes of the connected cluster, in the order of their addresses."""
    alive = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeManagerAddress"])
    probes: list[Any] = []
    for node in alive:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        actor_class: Any = ray.remote(num_cpus=0)(NodeProbe)
        probes.append(actor_class.options(scheduling_strategy=there).remote())
    until = time.monotonic() + ANSWER_SECONDS
    asked = [probe.facts.remote(node["NodeID"], folders, token) for node, probe in zip(alive, probes, strict=True)]
    names = _names(alive)
    found = []
    for name, node, probe, answer in zip(names, alive, probes, asked, strict=True):
        gpus = node["Resources"].get("GPU", 0.0)
        try:
            facts: Any = ray.get(answer, timeout=max(1.0, until - time.monotonic()))
            found.append(Node(name, gpus, _skew(probe), facts))
        except RayError as error:
            found.append(Node(name, gpus, error=_told(error)))
    for probe in probes:
        ray.kill(probe)
    return found


def judged(nodes: Sequence[Node], folders: Mapping[str, str], here: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about the nodes, with their fixes.

    Args:
        nodes: The nodes that were asked.
        folders: The user's address of each folder that was read and written.
        here: Versions of this process.
    """
    for node in nodes:
        if node.facts is None:
            own = f"tokenfree=={here['tokenfree']}"
            remedy = f"look at its logs, and whether tokenfree is installed there: pip install {own}"
            yield Finding("missing", f"node {node.name}", node.error, remedy)
    answered = [(node, node.facts) for node in nodes if node.facts is not None]
    for what, say in (
        ("versions", lambda node, facts: _versions(facts, here)),
        ("clock", lambda node, facts: _clock(node)),
        ("free disk", lambda node, facts: _at_least(facts.free_disk, LEAST_DISK)),
        ("/dev/shm", lambda node, facts: _at_least(facts.shared_memory, LEAST_SHARED)),
        ("open files", lambda node, facts: str(facts.open_files) if facts.open_files < LEAST_FILES else ""),
        ("gpu", lambda node, facts: _gpu(node, facts)),
    ):
        yield from _of_nodes(what, [(node.name, say(node, facts)) for node, facts in answered], _REMEDIES[what])
    for name, folder in folders.items():
        said = [(node.name, facts.storage[name]) for node, facts in answered]
        yield from _of_nodes(f"storage {folder}", said, _REMEDIES["storage"], well="read and written by all nodes")


def _of_nodes(what: str, said: Sequence[tuple[str, str]], remedy: str, well: str = "") -> Iterator[Finding]:
    """Yield one line if `said` is empty for all nodes, else a line for each other node."""
    bad = [(name, words) for name, words in said if words]
    state = "note" if what in ("clock", "free disk", "/dev/shm", "open files") else "missing"
    for name, words in bad:
        yield Finding(state, what, f"{name}: {words}", remedy)
    if not bad and said:
        yield Finding("ok", what, well or f"well on {len(said)} nodes")


def _versions(facts: NodeFacts, here: Mapping[str, str]) -> str:
    """Return how the versions of a node differ from those here."""
    names = [name for name in here if facts.versions.get(name) != here[name]]
    return ", ".join(f"{name} {facts.versions.get(name, 'not installed')} (here {here[name]})" for name in names)


def _clock(node: Node) -> str:
    if abs(node.skew) < MOST_SKEW:
        return ""
    return f"{abs(node.skew):.1f} s {'ahead' if node.skew > 0 else 'behind'}"


def _at_least(found: int | None, least: int) -> str:
    return "" if found is None or found >= least else f"{found / GIB:.1f} GiB"


def _gpu(node: Node, facts: NodeFacts) -> str:
    if facts.gpus.usable >= node.gpus:
        return ""
    cuda = f"built for CUDA {facts.gpus.cuda}" if facts.gpus.cuda else "built without CUDA"
    driver = f"driver {facts.gpus.driver}" if facts.gpus.driver else "no driver answers"
    return f"Ray counts {node.gpus:g}, torch can use {facts.gpus.usable} ({cuda}, {driver})"


def _skew(probe: Any) -> float:
    """Return the minimum skew of a probe's clock, from the fastest of several answers."""
    found = []
    for _ in range(_CLOCKS):
        asked = time.time()
        there: Any = ray.get(probe.clock.remote(), timeout=ANSWER_SECONDS)
        answered = time.time()
        found.append((answered - asked, max(there - answered, 0.0) or min(there - asked, 0.0)))
    return min(found)[1]


def _is_left(name: str, token: bytes, stack: contextlib.ExitStack) -> bool:
    """Create a folder with a file for the nodes to read, until the stack ends. Return True on success."""
    try:
        check_address(name)
        filesystem, path = fsspec.core.url_to_fs(name)
        filesystem.makedirs(path, exist_ok=True)
        stack.callback(_remove, filesystem, path)
        filesystem.pipe_file(f"{path}/{HEAD}", token)
    except Exception:  # file systems of fsspec may raise anything
        return False
    return True


def _remove(filesystem: Any, path: str) -> None:
    with contextlib.suppress(Exception):  # the store is gone, which was reported before
        filesystem.rm(path, recursive=True)


def _names(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the addresses of the nodes, followed by the start of the id if several nodes share one."""
    addresses = [node["NodeManagerAddress"] for node in nodes]
    return [
        address if addresses.count(address) == 1 else f"{address} ({node['NodeID'][:6]})"
        for address, node in zip(addresses, nodes, strict=True)
    ]


def _told(error: RayError) -> str:
    if isinstance(error, GetTimeoutError):
        return f"does not answer in {ANSWER_SECONDS:.0f} seconds"
    lines = str(error).strip().splitlines()
    return " ".join((lines[-1] if lines else type(error).__name__).split())[:160]
