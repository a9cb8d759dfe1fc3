"""A command under a limit of its address space (`ulimit -v`), where libraries may crash: a crash is one line too.

Torch, gRPC and OpenBLAS map far more than they use. Where they may not, some raise what becomes a line; others end the
process from within C++, on import or from a thread, which no `except` sees.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from tokenfree.preprocess.common.this_process import GIB, address_space, end_with_parent

_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_limited(command: Callable[[], int]) -> int:
    """The exit status of `command`. Where the address space is limited it runs in a child of this process, and 1 is
    also the status of one that crashes, with a line that says so; signals are passed on to it."""
    space = address_space()
    if space is None:
        return command()
    heard = {*_PASSED_ON, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        end_with_parent(parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
        return command()
    while True:
        came = signal.sigwaitinfo(heard)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return _told(os.waitstatus_to_exitcode(status), space)
        if came.si_signo != signal.SIGCHLD and came.si_code <= 0:  # by kill(2); a terminal sends it to the child too
            os.kill(child, came.si_signo)


def _told(status: int, space: int) -> int:
    """The exit status of a process of which `os.waitstatus_to_exitcode` says this."""
    if status >= 0:
        return status
    ended_by = signal.Signals(-status)
    if ended_by not in _CRASHES:
        return 128 + ended_by
    print(
        f"tokenfree: a library crashed ({ended_by.name}) where ulimit -v allows {space / GIB:.1f} GiB of addresses; "
        "libraries map far more than they use: ulimit -v unlimited, and limit memory by other means",
        file=sys.stderr,
    )
    return 1
