"""Checks of the nodes of a Ray cluster for `tokenfree doctor --cluster`. Each node checks itself."""

import contextlib
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fsspec
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenfree.core.errors import UserError
from tokenfree.core.ray_access import named_cluster
from tokenfree.core.storage import check_address
from tokenfree.train.ray.cluster import ray_environment, ray_session
from tokenfree.train.runs.provenance import packages as installed
from tokenfree.workflows.doctor import Finding, limits, memory

ANSWER_SECONDS = 120.0  # for a node to start a process and to report
HEAD = "head"  # file of the asking process, for all nodes to read
_GPU_PROGRAM = "import torch; print(torch.cuda.device_count())"


def cluster_findings(folders: Sequence[str]) -> Iterator[Finding]:
    """Check each node of the cluster of RAY_ADDRESS. All of them must read and write the addresses `folders`.

    Folders that this machine cannot write to are left to `storage`. Raises UserError if no cluster is named,
    and JobError if it does not answer.
    """
    if named_cluster() is None and not ray.is_initialized():
        raise UserError(
            "--cluster: no Ray cluster is named; set RAY_ADDRESS=HOST:PORT on one of its machines, or let it be asked "
            "there: tokenfree cluster submit -- doctor --cluster --storage s3://bucket/runs"
        )
    token = uuid.uuid4().hex.encode()
    probes = {f"{folder.rstrip('/')}/.doctor-{uuid.uuid4().hex}": folder for folder in folders}
    with contextlib.ExitStack() as stack:
        here = {name: folder for name, folder in probes.items() if _is_left(name, token, stack)}
        stack.enter_context(ray_environment())
        stack.enter_context(ray_session())
        nodes = sorted(
            (node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeManagerAddress"]
        )
        yield Finding("ok", "nodes", str(len(nodes)))
        check: Any = ray.remote(num_cpus=0)(node_findings)
        expected = versions()
        answers = []
        for node in nodes:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked = (node["NodeManagerAddress"], node["Resources"].get("GPU", 0.0), expected, here, token)
            answers.append(check.options(scheduling_strategy=there).remote(*asked))
        for node, answer in zip(nodes, answers, strict=True):
            try:
                yield from ray.get(answer, timeout=ANSWER_SECONDS)
            except RayError as error:
                said = " ".join(str(error).split())[-160:] or "no answer"
                remedy = f"look at its logs, and whether it has tokenfree=={versions()['tokenfree']}"
                yield Finding("missing", f"node {node['NodeManagerAddress']}", said, remedy)


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **installed()}


def node_findings(
    address: str, gpus: float, expected: Mapping[str, str], folders: Mapping[str, str], token: bytes
) -> list[Finding]:
    """Check this node and return what is wrong with it.

    `gpus` is the number that Ray counts, and `expected` are the versions of the asking process. That process
    has left a file with `token` in each address of `folders`, which maps addresses to the user's names for
    them.
    """
    findings = [finding for check in (memory, limits) for finding in check() if finding.state != "ok"]
    local_versions = versions()
    other = [
        f"{name} {local_versions.get(name)} (here {version})"
        for name, version in expected.items()
        if local_versions.get(name) != version
    ]
    if other:
        remedy = "install the same versions everywhere: one image, or one lock file on each node"
        findings.append(Finding("missing", "versions", ", ".join(other), remedy))
    if gpus and (usable := _gpus()) < gpus:
        remedy = "install the driver, or a torch built for the CUDA of the driver; then start the node again"
        findings.append(Finding("missing", "gpu", f"Ray counts {gpus:g}, torch can use {usable}", remedy))
    for left, folder in folders.items():
        if trouble := storage_trouble(left, token):
            remedy = "give an address that all nodes can write to, such as s3://bucket/runs, or mount it"
            findings.append(Finding("missing", f"storage {folder}", trouble, remedy))
    return [
        Finding(problem.state, problem.what, f"{address}: {problem.value}", problem.remedy)
        for problem in findings
    ]


def storage_trouble(folder: str, token: bytes) -> str:
    """Read the file `HEAD` of a folder and write another one. Return the problem, or ""."""
    try:
        filesystem, path = fsspec.core.url_to_fs(folder)
        if not filesystem.exists(f"{path}/{HEAD}") or filesystem.cat_file(f"{path}/{HEAD}") != token:
            return "is not the folder that the head sees"
        filesystem.pipe_file(f"{path}/{uuid.uuid4().hex}", token)
    except Exception as error:  # file systems of fsspec may raise anything
        return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())[
            :100
        ]
    return ""


def _gpus() -> int:
    """Return the GPUs that torch can use in a child process: Ray hides GPUs from tasks that requested none."""
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    said = subprocess.run(
        [sys.executable, "-c", _GPU_PROGRAM], env=env, capture_output=True, text=True
    ).stdout.strip()
    return int(said) if said.isdigit() else 0


def _is_left(name: str, token: bytes, stack: contextlib.ExitStack) -> bool:
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
    # The store is gone, which was reported before.
    with contextlib.suppress(Exception):
        filesystem.rm(path, recursive=True)
