"""Checks of this machine for `tokenfree doctor`."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import fsspec

from tokenfree.core.errors import first_line
from tokenfree.core.machine import GIB, cores, declared_requirements, install_command, machine_memory
from tokenfree.core.ray_access import TESTED, named_cluster, untested
from tokenfree.core.settings import build
from tokenfree.core.storage import check_address
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.kinds import PRETRAINING

State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. `note` is tolerable and `missing` is not; both come with a fix."""

    state: State
    what: str
    value: str
    remedy: str = ""


def _finding(what: str, value: str, good: bool, remedy: str, otherwise: State = "note") -> Finding:
    return Finding("ok", what, value) if good else Finding(otherwise, what, value, remedy)


def python() -> Iterator[Finding]:
    version, good = (
        f"{platform.python_version()} on {platform.system()}",
        (3, 11) <= sys.version_info[:2] <= (3, 13),
    )
    yield _finding("python", version, good, "install Python 3.11 and make the environment again", "missing")


def packages() -> Iterator[Finding]:
    requirements = declared_requirements()
    if not requirements:
        yield Finding("missing", "tokenfree", "not installed", install_command("all"))
    for requirement, extra in requirements:
        if extra in ("dataflow", "all"):
            continue
        remedy = install_command(extra) if extra else f"pip install '{requirement}'"
        otherwise = "note" if extra else "missing"
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            what = f"not installed (only for {extra})" if extra else "not installed"
            yield Finding(otherwise, requirement.name, what, remedy)
            continue
        good = requirement.specifier.contains(version, prereleases=True)
        yield _finding(requirement.name, version, good, remedy, otherwise)


def devices() -> Iterator[Finding]:
    remedy = "one core: use --workers 1, and expect the demo to take twice as long"
    yield _finding("cores", str(cores()), cores() >= 2, remedy)
    if importlib.util.find_spec("torch") is None:
        return
    try:
        import torch
    except Exception as error:  # such as OSError and ValueError where a library of CUDA is missing
        remedy = "install torch again; docs/install.md shows the builds for CPUs and for GPUs"
        yield Finding("missing", "torch", f"cannot be imported: {first_line(error)}", remedy)
        return
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Finding("ok", "gpu", ", ".join(names))
    else:
        remedy = "CPU training works; for a GPU install its driver and a CUDA build of torch"
        yield Finding("note", "gpu", "none", remedy)


def memory() -> Iterator[Finding]:
    total = machine_memory()
    yield _finding("memory", f"{total / GIB:.1f} GiB", total >= 4 * GIB, "4 GiB are advised")
    if os.path.isdir("/dev/shm"):
        shared = shutil.disk_usage("/dev/shm").total
        remedy = "start the container with --shm-size=2g, else Ray falls back to slow files in /tmp"
        yield _finding("/dev/shm", f"{shared / GIB:.1f} GiB", shared >= GIB // 2, remedy)


def limits() -> Iterator[Finding]:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _finding(
        "open files", str(files), files == resource.RLIM_INFINITY or files >= 4096, "ulimit -n 65536"
    )
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if seconds != resource.RLIM_INFINITY:
        yield Finding(
            "note", "CPU time", f"{seconds} s", "ulimit -t unlimited, or the job is killed at that time"
        )
    if "SLURM_JOB_ID" in os.environ and "SLURM_JOB_END_TIME" in os.environ:
        remedy = "checkpoints are written regularly; submit the same command again to resume"
        yield Finding("note", "batch job", f"ends at {os.environ['SLURM_JOB_END_TIME']} (Unix time)", remedy)


def java() -> Iterator[Finding]:
    path = shutil.which("java")
    remedy = "needed by --runner flink and --runner spark alone: install a Java 17 runtime"
    if path is None:
        yield Finding("note", "java", "not found", remedy)
        return
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'"(\d+)', said)
    good = version is not None and int(version.group(1)) >= 11
    yield _finding("java", version.group(1) if version else said[:40], good, remedy)


# Of each engine, the program that Beam stores in the home directory, and the address of its profile.
ENGINES = {
    "flink": ("jars/*flink*.jar", ("localhost", 8081)),
    "spark": ("jars/*spark*.jar", ("localhost", 7077)),
    "prism": ("prism/bin/*", None),
}


def engines() -> Iterator[Finding]:
    for name, (program, master) in ENGINES.items():
        lacks = []
        if master is not None and shutil.which("java") is None:
            lacks.append("Java")
        if not any(Path.home().glob(f".apache_beam/cache/{program}")):
            lacks.append("a program that Beam downloads on first use")
        if master is not None:
            try:
                socket.create_connection(master, timeout=1).close()
            except OSError:
                lacks.append(f"a master at {master[0]}:{master[1]}")
        remedy = "needed by this runner alone: see docs/engines.md" if lacks else ""
        value = f"lacks {', '.join(lacks)}" if lacks else "ready"
        yield Finding("note" if lacks else "ok", f"--runner {name}", value, remedy)


def ray_cluster() -> Iterator[Finding]:
    """Yield the versions of Ray that were tested, and the cluster that the environment names.

    Without a cluster, each command starts its own on this machine.
    """
    if importlib.util.find_spec("ray") is not None:
        yield _finding("ray was tested", ", ".join(TESTED), not untested(), untested())
    yield Finding(
        "ok", "ray cluster", named_cluster() or "none named: each command starts one on this machine"
    )


def storage(url: str) -> Iterator[Finding]:
    name = f"{url.rstrip('/')}/.doctor-{uuid.uuid4().hex}"
    try:
        check_address(url)
        filesystem, path = fsspec.core.url_to_fs(name)
        filesystem.makedirs(os.path.dirname(path), exist_ok=True)
        filesystem.pipe_file(path, b"tokenfree")
        well = filesystem.cat_file(path) == b"tokenfree"
        filesystem.rm_file(path)
    except (OSError, ImportError, ValueError) as error:
        remedy = "choose a folder that you may write to, or check the URL and its credentials"
        yield Finding("missing", f"storage {url}", " ".join(str(error).split())[:100], remedy)
        return
    yield Finding(
        "ok" if well else "missing", f"storage {url}", "written, read, removed" if well else "reads differ"
    )
    if "://" not in url:
        free = shutil.disk_usage(url).free
        yield _finding("free room", f"{free / GIB:.1f} GiB", free >= 2 * GIB, "2 GiB for the demo")


def training_step(name: str) -> Iterator[Finding]:
    from tokenfree.train import planning
    from tokenfree.train.config import PretrainRecipe
    from tokenfree.train.model.costs import step_memory

    library.check_kind(PRETRAINING, name)
    recipe = build(PretrainRecipe, library.read_based(name), source=f"recipe {name}")
    batch = recipe.train.micro_batch or recipe.train.global_batch
    needed = step_memory(recipe.model, recipe.train.length, batch).total
    value = f"{needed / GIB:.1f} GiB for {batch} examples at once"
    remedy = f"set train.micro_batch below {batch}, or use more workers"
    yield _finding(f"memory of {name}", value, needed < 0.8 * machine_memory(), remedy)
    speed = planning.bfloat16_speed(recipe.model.dimensions)
    remedy = planning.advice(speed, recipe.train.precision)
    yield _finding(f"precision of {name}", planning.bfloat16_summary(speed), not remedy, remedy)


CHECKS = (python, packages, devices, memory, limits, java, engines, ray_cluster)
