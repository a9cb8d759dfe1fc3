"""The processes of Ray that this process has started, to be killed by tests."""

import contextlib

import psutil

from tokenfree.train.ray.child import ray_processes


def parts_named(end: str, family: list[psutil.Process] | None = None) -> list[psutil.Process]:
    """Those of a family, by default all that live, whose title ends so, such as "/raylet"."""
    return [process for process in family or ray_processes(title="") if _title(process).endswith(end)]


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):  # it has ended
        return next(iter(process.cmdline()), "")
    return ""
