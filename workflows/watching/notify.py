"""The command's side of `--notify`: signs of life to the process that watches it, see `watcher`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tokenfree.preprocess.common.errors import StoppedError
from tokenfree.preprocess.common.printable import one_line
from tokenfree.workflows.watching import receiver, watcher
from tokenfree.workflows.watching.watcher import Status, Watched

_SIGN_SECONDS = 1.0  # between two signs of life
_LONGEST_MESSAGE = 300  # characters: a line stays below what a pipe takes at once
_EXIT_SECONDS = receiver.COMMAND_SECONDS + 15  # for the last notice to be handed over


class Sender:
    """Sends signs of life; never fails, and never waits once the watcher has begun."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._sent = float("-inf")

    def sign(self, facts: Mapping[str, Any]) -> None:
        """The work went on; of several in a second the first is sent."""
        now = time.monotonic()
        if now - self._sent >= _SIGN_SECONDS:
            self._sent = now
            self._write({"facts": dict(facts)})

    def end(self, status: Status, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """The last word."""
        said = {} if error is None or not str(error) else {"message": one_line(error)[:_LONGEST_MESSAGE]}
        self._write({"status": status, "facts": {**facts, **said}})

    def _write(self, sign: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # somebody has killed or stopped the watcher
            os.write(self._pipe, json.dumps(sign).encode() + b"\n")


@contextlib.contextmanager
def notifying(
    to: str, command: str, output: str, facts: Callable[[], Mapping[str, Any]], stalled_after: float | None
) -> Iterator[Sender]:
    """In the block a process watches this one, and tells `to` what becomes of it.

    Args:
        to: see `receiver`.
        command: its name.
        output: what it makes.
        facts: how far it is.
        stalled_after: seconds without a step after which it is stalled, None: see `watcher`.
    """
    process = _own_descriptor()
    path = f"import sys; sys.path[:] = {sys.path!r}; from {watcher.__name__} import main; main()"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watcher.SIGNALS)  # until it takes them, see `watcher.main`
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[] if process is None else [process],
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert child.stdin is not None
    pipe = child.stdin.fileno()
    first = dataclasses.asdict(Watched(to, command, output, process, stalled_after))
    os.write(pipe, json.dumps(first).encode() + b"\n")
    os.set_blocking(pipe, False)
    sender = Sender(pipe)
    try:
        yield sender
    except BaseException as error:
        stopped = isinstance(error, (KeyboardInterrupt, StoppedError))
        sender.end("stopped" if stopped else "failed", facts(), error)
        raise
    else:
        sender.end("finished", facts(), None)
    finally:
        with contextlib.suppress(OSError):
            child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_EXIT_SECONDS)
        if process is not None:
            os.close(process)


def _own_descriptor() -> int | None:
    """A descriptor of this process, by which another sees its end: children that outlive it may keep a pipe open."""
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return None
