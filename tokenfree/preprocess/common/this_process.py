"""This process: how much memory its machine has, and with whom it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

GIB = 1 << 30
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def end_with_parent(parent: int) -> None:
    """Have this process killed when `parent`, its parent's id, is gone, or the thread of it that started this one.

    On Linux; elsewhere only a parent that is gone already is noticed.
    """
    with contextlib.suppress(OSError, AttributeError):  # a system that is not Linux
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
