"""The signals that stop a command in order: of terminals, schedulers, machines that end, and limits of CPU time."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
# Terminals and Slurm send these to all of its processes.
OF_GROUPS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM)  # these end a command that is already stopping


@contextlib.contextmanager
def on_first_signal(act: Callable[[signal.Signals], object]) -> Iterator[None]:
    """Call `act` with the first of `STOP_SIGNALS` within the block, in the main thread.

    Signals that were ignored before, as under nohup, stay ignored. After the first one, SIGINT and SIGTERM
    have their previous effects. The others are ignored, because shells repeat SIGHUP and the kernel repeats
    SIGXCPU.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        for kind, handler in previous.items():
            signal.signal(kind, handler if kind in _ENDING else signal.SIG_IGN)
        act(signal.Signals(number))

    kinds = [kind for kind in STOP_SIGNALS if signal.getsignal(kind) not in (signal.SIG_IGN, None)]
    previous = {kind: signal.getsignal(kind) for kind in kinds}
    for kind in kinds:
        signal.signal(kind, handle)
    try:
        yield
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)


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
    stop = Stop()

    def note(kind: signal.Signals) -> None:
        stop.ask(kind.name)
        if kind == signal.SIGINT:
            # To standard error, but not with print, which the signal may have interrupted.
            with contextlib.suppress(OSError):
                os.write(2, ANSWER)

    with on_first_signal(note):
        yield stop
