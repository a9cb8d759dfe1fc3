"""Checks of a machine: each is a function that returns findings, and each finding that is not well says the remedy."""

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenfree.preprocess.common.addresses import check_address
from tokenfree.preprocess.common.installed import own_requirements
from tokenfree.preprocess.common.this_process import GIB, machine_memory
from tokenfree.workflows.doctor.finding import Finding, State


def python() -> Iterator[Finding]:
    """The interpreter's version."""
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    remedy = "" if good else "install Python 3.11 and make the environment anew: make setup"
    yield Finding("ok" if good else "missing", "python", f"{platform.python_version()} on {platform.system()}", remedy)


def packages() -> Iterator[Finding]:
    """Every dependency that tokenfree declares: present, and no older than it asks."""
    from packaging.requirements import Requirement

    if not own_requirements():
        yield Finding("missing", "tokenfree", "not installed", "pip install -e . in the checkout")
    for line in own_requirements():
        requirement = Requirement(line)
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if extra and extra.group(1) == "dev":
            continue
        remedy = f"pip install 'tokenfree[{extra.group(1)}]'" if extra else f"pip install '{requirement}'"
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            if extra is None:
                yield Finding("missing", requirement.name, "not installed", remedy)
            else:
                yield Finding("note", requirement.name, f"not installed (only for {extra.group(1)})", remedy)
            continue
        good = requirement.specifier.contains(version, prereleases=True)
        if extra is None or not good:
            state: State = "ok" if good else "missing" if extra is None else "note"
            yield Finding(state, requirement.name, version, "" if good else remedy)


def devices() -> Iterator[Finding]:
    """CPU cores that this process may use, and GPUs."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding(
        "ok" if cores >= 2 else "note",
        "cores",
        str(cores),
        "" if cores >= 2 else "one core: use --workers 1, and expect the demo to take twice as long",
    )
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Finding("ok", "gpu", ", ".join(names))
    else:
        yield Finding(
            "note", "gpu", "none", "CPU training works; for a GPU install its driver and a CUDA build of torch"
        )


def memory() -> Iterator[Finding]:
    """Main memory, and the shared memory that Ray keeps objects in."""
    total = machine_memory()
    good = total >= 4 * GIB
    yield Finding("ok" if good else "note", "memory", f"{total / GIB:.1f} GiB", "" if good else "4 GiB are advised")
    if os.path.isdir("/dev/shm"):
        shared = shutil.disk_usage("/dev/shm").total
        good = shared >= GIB // 2
        remedy = "" if good else "start the container with --shm-size=2g, else Ray falls back to slow files in /tmp"
        yield Finding("ok" if good else "note", "/dev/shm", f"{shared / GIB:.1f} GiB", remedy)


def limits() -> Iterator[Finding]:
    """Limits that kill or starve long jobs: open files, CPU time, a batch system's time limit."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    good = files == resource.RLIM_INFINITY or files >= 4096
    yield Finding("ok" if good else "note", "open files", str(files), "" if good else "ulimit -n 65536")
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if seconds != resource.RLIM_INFINITY:
        yield Finding("note", "CPU time", f"{seconds} s", "ulimit -t unlimited, or the job is killed at that time")
    if "SLURM_JOB_ID" in os.environ and "SLURM_JOB_END_TIME" in os.environ:
        remedy = "checkpoints are taken on the way; submit the same command again to go on"
        yield Finding("note", "batch job", f"ends at {os.environ['SLURM_JOB_END_TIME']} (Unix time)", remedy)


def java() -> Iterator[Finding]:
    """Java 11 or newer, which the Flink and Spark runners need; the direct runner does not."""
    path = shutil.which("java")
    remedy = "needed by --runner flink and --runner spark alone: install a Java 17 runtime"
    if path is None:
        yield Finding("note", "java", "not found", remedy)
        return
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'"(\d+)', said)
    good = version is not None and int(version.group(1)) >= 11
    yield Finding("ok" if good else "note", "java", version.group(1) if version else said[:40], "" if good else remedy)


def engines() -> Iterator[Finding]:
    """What Beam's engines need beside Java: job servers for Flink and Spark, and Prism."""
    from tokenfree.train.machine.cache_folder import folder

    beam = Path.home() / ".apache_beam" / "cache"
    for name, option in (("flink", "--flink_job_server_jar"), ("spark", "--spark_job_server_jar")):
        found = [*beam.glob(f"jars/beam-runners-{name}-*.jar"), *folder().glob(f"engines/{name}-job-server.jar")]
        remedy = f"only for --runner {name}: Beam downloads it from Maven Central, or give -- {option}=FILE"
        yield _engine(f"{name} job server", found, remedy)
    program, version = shutil.which("prism"), importlib.metadata.version("apache-beam")
    found = [Path(program)] if program else [*beam.glob("prism/bin/*prism*"), *folder().glob("engines/prism")]
    remedy = f"only for --runner prism: go install github.com/apache/beam/sdks/v2/go/cmd/prism@v{version}"
    yield _engine("prism", found, remedy)


def _engine(what: str, found: list[Path], remedy: str) -> Finding:
    return Finding("ok", what, str(found[0])) if found else Finding("note", what, "not here", remedy)


def ray_cluster() -> Iterator[Finding]:
    """Whether a cluster is named by the environment; without one each command starts its own on this machine."""
    address = os.environ.get("RAY_ADDRESS")
    yield Finding("ok", "ray cluster", address or "none named: each command starts one on this machine")


def storage(url: str) -> Iterator[Finding]:
    """Whether files can be written, read and removed under `url`, and how much room is left there."""
    import fsspec

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
    yield Finding("ok" if well else "missing", f"storage {url}", "written, read, removed" if well else "reads differ")
    if "://" not in url:
        free = shutil.disk_usage(url).free
        good = free >= 2 * GIB
        yield Finding(
            "ok" if good else "note", "free room", f"{free / GIB:.1f} GiB", "" if good else "2 GiB for the demo"
        )


def training_step(name: str) -> Iterator[Finding]:
    """Whether one worker's training step of a pretraining recipe fits this machine's memory, and has its precision."""
    from tokenfree.preprocess.common.settings import build
    from tokenfree.train.config import PretrainRecipe
    from tokenfree.train.model import costs, precision
    from tokenfree.workflows.recipes import library
    from tokenfree.workflows.recipes.kinds import PRETRAINING

    library.check_kind(PRETRAINING, name)
    recipe = build(PretrainRecipe, library.read_based(name), source=f"recipe {name}")
    batch = recipe.train.micro_batch or recipe.train.global_batch
    needed = costs.step_memory(recipe.model, recipe.train.length, batch).total
    total = machine_memory()
    good = needed < 0.8 * total
    remedy = "" if good else f"set train.micro_batch below {batch}, or use more workers"
    shown = f"{needed / GIB:.1f} GiB for {batch} examples at once"
    yield Finding("ok" if good else "note", f"memory of {name}", shown, remedy)
    speed = precision.bfloat16_speed(recipe.model.dimensions)
    remedy = precision.advice(speed, recipe.train.precision)
    yield Finding("note" if remedy else "ok", f"precision of {name}", precision.told(speed), remedy)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python,
    packages,
    devices,
    memory,
    limits,
    java,
    engines,
    ray_cluster,
)
