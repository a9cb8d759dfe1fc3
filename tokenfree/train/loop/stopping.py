"""Stop a run between two steps, with a checkpoint, on Ctrl-C or on SIGTERM from spot machines and schedulers."""

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
    """A flag that asks training to stop after the current step, with the reason. The first request counts."""

    def __init__(self) -> None:
        self.reason = ""
        self.goes_on = False  # whether the workers will be restarted, so that the run itself does not end

    def ask(self, reason: str, *, goes_on: bool = False) -> None:
        if not self.reason:
            self.reason, self.goes_on = reason, goes_on

    def __bool__(self) -> bool:
        return bool(self.reason)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Catch SIGINT and SIGTERM within the block, in the main thread. A second signal has its previous effect."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def note(number: int, frame: FrameType | None) -> None:
        stop.ask(signal.Signals(number).name)
        if number == signal.SIGINT:
            with contextlib.suppress(OSError):  # not with print, which the signal may have interrupted
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
