"""`tokenfree` commands as child processes, one at a time, that end with this one and lose nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tokenfree.preprocess.common.errors import JobError

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def call(arguments: Sequence[str], log: Path, *, output: Path | None = None) -> None:
    """Run `tokenfree ARGUMENTS` to its end, with one thread; what it prints is appended to `log`.

    On Ctrl-C the child gets SIGTERM, writes a checkpoint where it trains, and is waited for. It gets the same signal
    where this process is killed (Linux).

    Args:
        output: where standard output goes instead, from the start of the file.

    Raises:
        JobError: it failed; with the last line that it printed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        if output is None:
            status = _wait(arguments, errors, errors)
        else:
            with output.open("wb") as file:
                status = _wait(arguments, file, errors)
    if status:
        raise JobError(f"tokenfree {arguments[0]} ended with {status}: {last_line(log)} ({log})")


def _wait(arguments: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> int:
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenfree", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env={**os.environ, **_ENVIRONMENT},
        start_new_session=True,  # Ctrl-C of a terminal reaches this process alone, which passes it on
        preexec_fn=_at_death_of(os.getpid()) if sys.platform == "linux" else None,
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def _at_death_of(parent: int) -> Callable[[], None]:
    """What a child does before it starts: ask for SIGTERM when `parent` dies, and leave if it died meanwhile."""
    library = ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def last_line(log: Path) -> str:
    """The last line of a file that is not empty, of its last 4,000 bytes."""
    lines = log.read_bytes()[-4000:].decode("utf-8", errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
