"""This process: how much memory it may have, and with whom it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal

GIB = 1 << 30
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def address_space() -> int | None:
    """Bytes of address space that this process may have (`ulimit -v`); None: as many as it wants."""
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if own == resource.RLIM_INFINITY else own


def memory_limit() -> int:
    """Bytes of this machine's memory, or of this process's address space where that is less."""
    own = address_space()
    return machine_memory() if own is None else min(machine_memory(), own)


def end_with_parent(parent: int) -> None:
    """Have this process killed when `parent`, its parent's id, is gone, or the thread of it that started this one.

    On Linux; elsewhere only a parent that is gone already is noticed.
    """
    with contextlib.suppress(OSError, AttributeError):  # a system that is not Linux
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
