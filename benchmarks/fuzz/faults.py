"""Kills a process from within, at the moment when it is about to change a name, or to open a file to write it.

No file of the code under test is touched: the interpreter itself tells of such moments (PEP 578). A process that was
forked calls `install`; others find their orders in the environment, by `startup/sitecustomize.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ORDERS = "TOKENFREE_FUZZ_KILL"
_NAMES = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Fault:
    """When a command is killed (SIGKILL), and what of it.

    Attributes:
        change: before its change of this number to files and names; None for no such moment.
        seconds: after so many of them; None for no such moment.
        victim: `group`, all its processes; `process`, the one that makes the change, or that was started first;
            `worker`, one of those that it has started.
    """

    change: int | None = None
    seconds: float | None = None
    victim: str = "group"

    def __str__(self) -> str:
        when = f"before change {self.change}" if self.change is not None else f"after {self.seconds:.3f} s"
        return f"SIGKILL to the {self.victim} {when}"

    def orders(self, folder: str) -> dict[str, str]:
        """The environment by which a process and all that it starts learn of the change; `folder` is to be empty."""
        return {} if self.change is None else {ORDERS: f"{self.change}:{self.victim}:{folder}"}


def install(change: int | None, victim: str, inside: str, first: Callable[[], bool] = lambda: True) -> list[int]:
    """Kill this process (or its group) before its change of number `change`; the list's one number counts them.

    Args:
        inside: the folder whose changes count; what is elsewhere, such as caches of libraries, differs from time to
            time.
        first: whether no other process was killed already.
    """
    count = [0]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if not (event in _NAMES or (event == "open" and _writes(arguments))) or not _is_inside(arguments[0], inside):
            return
        count[0] += 1
        if count[0] == change and first():
            if victim == "group":
                os.killpg(0, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return count


def install_from(environment: Mapping[str, str]) -> None:
    """Do what `Fault.orders` say, if anything. Of several processes the one that comes first is killed."""
    if ORDERS not in environment:
        return
    change, victim, folder = environment[ORDERS].split(":", 2)

    def first() -> bool:
        try:
            os.close(os.open(os.path.join(folder, "killed"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    install(int(change), victim, os.path.dirname(folder), first)


def _writes(arguments: tuple[object, ...]) -> bool:
    return isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)


def _is_inside(path: object, folder: str) -> bool:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    name = os.fsdecode(path)
    return not name.startswith("/") or name.startswith(folder)
