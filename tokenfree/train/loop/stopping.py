"""Requests to stop training, which signals make."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from tokenfree.core.signals import on_first_signal

_STANDARD_ERROR = 2
ANSWER = b"\nstopping after this step, with a checkpoint; Ctrl-C again ends it now\n"


class Stop:
    """A flag that asks training to stop after the current step, with the reason. The first request counts."""

    def __init__(self) -> None:
        self.reason = ""
        # Whether the workers will be restarted, so that the run itself does not end.
        self.resumes = False

    def ask(self, reason: str, *, resumes: bool = False) -> None:
        if not self.reason:
            self.reason, self.resumes = reason, resumes

    def __bool__(self) -> bool:
        return bool(self.reason)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Yield a request to stop, which the first signal of `on_first_signal` within the block makes."""
    stop = Stop()

    def note(kind: signal.Signals) -> None:
        stop.ask(kind.name)
        if kind == signal.SIGINT:
            # Not with print, which the signal may have interrupted.
            with contextlib.suppress(OSError):
                os.write(_STANDARD_ERROR, ANSWER)

    with on_first_signal(note):
        yield stop
