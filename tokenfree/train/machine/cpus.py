"""How many CPUs there are to use: what the process may run on, and what its container is given of them."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = _CGROUP) -> int:
    """The CPUs that this process may use; a container's share of CPU time counts, rounded down, as so many CPUs."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _share(cgroup)
    return allowed if share is None else max(1, min(allowed, int(share)))


def _share(cgroup: Path) -> float | None:
    """CPU seconds for each second by the limits of cgroups, version 2 or 1; None where there is no limit."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{what}_us").read_text() for what in ("quota", "period"))
        return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return None
