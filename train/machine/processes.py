"""Processes that Ray started under this one: found in /proc, ended if they outlive their session.

Of some thirty sessions that ended as they should, one left a Ray process behind that hung while it exited, with 400 MB.
Where there is no /proc (macOS) nothing is found and nothing is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process; its start (clock ticks since boot) tells it from a later one with the same id."""

    pid: int
    parent: int
    start: int
    title: str  # such as `ray::RayTrainWorker`


def ray_processes() -> list[Process]:
    """The descendants of this process that bear a title of Ray's."""
    return [process for process in descendants(os.getpid()) if process.title.startswith("ray::")]


def descendants(pid: int) -> list[Process]:
    """The children of the process `pid`, their children, and so on."""
    everyone = [found for entry in _PROC.glob("[0-9]*") if (found := _read(int(entry.name))) is not None]
    family = {pid}
    grown = True
    while grown:
        children = {process.pid for process in everyone if process.parent in family} - family
        family |= children
        grown = bool(children)
    return [process for process in everyone if process.pid in family - {pid}]


def start_of(pid: int) -> int | None:
    """The start of the process `pid`, None where there is none."""
    found = _read(pid)
    return None if found is None else found.start


def end_stragglers(processes: list[Process], *, seconds: float = 3.0) -> None:
    """Give `processes` some time to exit by themselves, then kill those that have not."""
    until = time.monotonic() + seconds
    while (left := [process for process in processes if _lives(process)]) and time.monotonic() < until:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _lives(process: Process) -> bool:
    found = _read(process.pid)
    return found is not None and found.start == process.start


def _read(pid: int) -> Process | None:
    """The process `pid`, None where there is none or only its exit status is left."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        title = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else Process(pid, int(fields[1]), int(fields[19]), title)
