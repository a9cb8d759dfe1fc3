"""Processes that Ray started: found, and ended if they outlive their session.

Of some thirty sessions that ended as they should, one left a Ray process behind that hung while it exited, with 400 MB.
"""

from __future__ import annotations

import contextlib
import os
import time

import psutil


def ray_processes(pid: int | None = None, title: str = "ray::") -> list[psutil.Process]:
    """The descendants of the process `pid`, by default of this one, whose title begins so: `ray::RayTrainWorker`."""
    return [process for process in psutil.Process(pid).children(recursive=True) if _title(process).startswith(title)]


def session_processes(session: int) -> list[psutil.Process]:
    """The processes of the operating system's session of this id, which they keep where their parent has ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):  # it has ended
            if os.getsid(process.pid) == session:
                found.append(process)
    return found


def end_stragglers(processes: list[psutil.Process], *, seconds: float = 3.0) -> None:
    """Give `processes` some time to exit by themselves, then kill those that have not.

    Their exit status is left to whoever started them, for which `psutil.wait_procs` would not do.
    """
    until = time.monotonic() + seconds
    while (left := [process for process in processes if _lives(process)]) and time.monotonic() < until:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):  # also where another process has its id by now
            process.kill()


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or is another user's
        return next(iter(process.cmdline()), "")
    return ""
