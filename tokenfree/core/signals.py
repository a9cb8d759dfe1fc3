"""The signals that stop a command in order: of terminals, schedulers, machines that end, and limits of CPU time."""

import contextlib
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
