"""Stopping a run between two steps, with a checkpoint: Ctrl-C, or SIGTERM as spot machines and schedulers send it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_STANDARD_ERROR = 2
ANSWER = b"\nstopping after this step, with a checkpoint; Ctrl-C again ends it now\n"


class Stop:
    """Whether training is to stop after the step it is at, and why; where several ask, the first counts."""

    def __init__(self) -> None:
        self.reason = ""
        self.goes_on = False  # the workers are to be started again: the run itself is not to end

    def ask(self, reason: str, *, goes_on: bool = False) -> None:
        """Stop for `reason`, such as "SIGTERM"."""
        if not self.reason:
            self.reason, self.goes_on = reason, goes_on

    def __bool__(self) -> bool:
        return bool(self.reason)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Catch SIGINT and SIGTERM in the block, of the main thread; a second one acts as it did before."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def note(number: int, frame: FrameType | None) -> None:
        stop.ask(signal.Signals(number).name)
        if number == signal.SIGINT:
            with contextlib.suppress(OSError):  # not by print: the signal may have come in the midst of one
                os.write(_STANDARD_ERROR, ANSWER)
        for kind in kinds:
            signal.signal(kind, before[kind])

    for kind in kinds:
        signal.signal(kind, note)
    try:
        yield stop
    finally:
        for kind in kinds:
            signal.signal(kind, before[kind])
