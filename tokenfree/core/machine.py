"""This machine and process: CPUs, memory, and the installed package."""

import os
import re
import shlex
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def version_of(package: str) -> str:
    # Takes a tenth of a second, and few commands need it.
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation: by the path of its checkout, if it is in one."""
    root = Path(__file__).resolve().parents[2]
    source = root if (root / "pyproject.toml").is_file() else "tokenfree"
    return f"pip install {shlex.quote(f'{source}[{extra}]')}"


def declared_requirements() -> list[tuple[Any, str]]:
    """Return the `Requirement`s that tokenfree declares, each with its extra or "", or [] if it is not installed."""
    # Takes a tenth of a second, and few commands need it.
    import importlib.metadata

    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("tokenfree") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    requirements = [(Requirement(line), "".join(_EXTRA.findall(line))) for line in lines]
    return [(requirement, extra) for requirement, extra in requirements if requirement.name != "tokenfree"]


def required_packages() -> list[str]:
    extras = ("", "beam", "model", "train")
    return sorted({requirement.name for requirement, extra in declared_requirements() if extra in extras})


GIB = 1 << 30


def machine_memory() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def within(seconds: float, act: Callable[[], T]) -> T:
    """Return `act()`.

    Raises TimeoutError if it takes longer, as the lookup of a name may in spite of other limits.
    """
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(act())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {seconds:g} s") from error


_CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = _CGROUP) -> int:
    """Return the number of CPUs that this process may use, within its container's CPU limit (rounded down)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _share(cgroup)
    return allowed if share is None else max(1, min(allowed, int(share)))


def _share(cgroup: Path) -> float | None:
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota, period = (
                (cgroup / "cpu" / f"cpu.cfs_{what}_us").read_text() for what in ("quota", "period")
            )
        return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return None
