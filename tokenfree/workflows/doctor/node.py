"""What a node of a cluster is and can do, told by the node itself."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import fsspec

from tokenfree.preprocess.common.installed import own_requirements

HEAD = "head"  # the file that the asking process has left for all nodes to read
_SHARED_MEMORY = "/dev/shm"
_GPU_PROGRAM = "import torch; print(torch.cuda.device_count(), torch.version.cuda or '')"
_GPU_SECONDS = 60.0


@dataclass(frozen=True)
class Gpus:
    """GPUs of a node: how many torch can use, the CUDA that torch is built for, and the version of the driver."""

    usable: int
    cuda: str
    driver: str


@dataclass(frozen=True)
class NodeFacts:
    """What a node says of itself.

    Attributes:
        versions: of Python, of tokenfree and of each package that it needs.
        free_disk: bytes that are left where Ray keeps its files.
        shared_memory: bytes of /dev/shm in all; None where there is no such folder.
        open_files: the limit of a process, as high as it may set it itself.
        gpus: see `Gpus`.
        storage: for each address what went wrong there, "" for nothing.
    """

    versions: dict[str, str]
    free_disk: int
    shared_memory: int | None
    open_files: int
    gpus: Gpus
    storage: dict[str, str]


def versions() -> dict[str, str]:
    """Those of Python, of tokenfree, and of each package that is installed of those that it declares."""
    names = {
        match.group() for line in own_requirements() if "extra ==" not in line and (match := re.match(r"[\w.-]+", line))
    }
    found = {"python": platform.python_version()}
    for name in ("tokenfree", *sorted(names)):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


class NodeProbe:
    """An actor on a node."""

    def clock(self) -> float:
        """Seconds since 1970, as this node has them."""
        return time.time()

    def facts(self, name: str, folders: Sequence[str], token: bytes) -> NodeFacts:
        """All but the clock.

        Args:
            name: of the node; a file of this name is left in each folder.
            folders: addresses in which the asking process has left a file with `token`.
            token: what that file must hold.
        """
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        shared = shutil.disk_usage(_SHARED_MEMORY).total if os.path.isdir(_SHARED_MEMORY) else None
        return NodeFacts(
            versions=versions(),
            free_disk=shutil.disk_usage(_ray_folder()).free,
            shared_memory=shared,
            open_files=sys.maxsize if most == resource.RLIM_INFINITY else most,
            gpus=_gpus(),
            storage={folder: storage_trouble(folder, name, token) for folder in folders},
        )


def storage_trouble(folder: str, name: str, token: bytes) -> str:
    """Read the file `HEAD` of a folder and leave one called `name`; what went wrong, "" for nothing."""
    try:
        filesystem, path = fsspec.core.url_to_fs(folder)
        if not filesystem.exists(f"{path}/{HEAD}"):
            return "is not the folder that the head sees"
        if filesystem.cat_file(f"{path}/{HEAD}") != token:
            return "reads other bytes than the head wrote"
    except Exception as error:  # whatever a file system of fsspec raises
        return f"cannot be read: {_said(error)}"
    try:
        filesystem.pipe_file(f"{path}/{name}", token)
    except Exception as error:
        return f"cannot be written: {_said(error)}"
    return ""


def _said(error: Exception) -> str:
    return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())[:100]


def _ray_folder() -> str:
    import ray

    return ray.get_runtime_context().get_temp_dir() if ray.is_initialized() else tempfile.gettempdir()


def _gpus() -> Gpus:
    """Asked in a process of its own: Ray hides GPUs from a process that has asked for none."""
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        said = subprocess.run(
            [sys.executable, "-c", _GPU_PROGRAM], env=env, capture_output=True, text=True, timeout=_GPU_SECONDS
        ).stdout
        usable, _, cuda = said.strip().rpartition("\n")[2].partition(" ")
        count = int(usable)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        count, cuda = 0, ""
    return Gpus(count, cuda, _driver())


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.split("\n")[0].strip() if said.returncode == 0 else ""
