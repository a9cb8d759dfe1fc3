"""What a person sees of a sweep that runs: a table in a terminal, and a line for each event in a log file."""

import os
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from tokenfree.train.sweep.control.history import Event, History
from tokenfree.workflows.terminal.sweep_frame import frame, news
from tokenfree.workflows.terminal.sweep_pace import SweepPace

TICK = 1.0  # seconds between two drawings of the clock
_FRAME, _FRAME_END = "\x1b[?2026h\x1b[?7l", "\x1b[?7h\x1b[?2026l"  # one update for the eye, and no line wraps


class SweepTable:
    """Shows the trials of a sweep: `with SweepTable() as table: run_sweep(..., progress=table)`.

    In a terminal a frame is written over the last one in a single piece, cut to the terminal's width and height; where
    the table is higher, trials that train stand first, then the best ones.

    Args:
        stream: standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._pace = SweepPace(time.monotonic())
        self._history = History(seeds=1, reports=1)  # after the last event
        self._states: dict[str, str] = {}  # of the trials, as the log says
        self._drawn = (0, (0, 0))  # lines of the last frame, and the terminal's size then
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __call__(self, event: Event, history: History) -> None:
        """Show an event, with what is known after it."""
        with self._lock:
            self._history = history
            self._pace.hear(event, history, time.monotonic())
            if self._live:
                self._draw()
            elif "trial" in event:
                self._log(event, history)

    def lines(self, width: int, height: int) -> list[str]:
        """The frame as it stands, at most `height` lines of at most `width` characters."""
        return frame(self._history, self._pace, time.monotonic(), width, height)

    def __enter__(self) -> "SweepTable":
        if self._live:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        with self._lock:
            if self._live and self._history.trials:
                self._draw()

    def _log(self, event: Event, history: History) -> None:
        """A line for what begins or reports, and for a trial that came into another state by something else."""
        trial = history.trials[event["trial"]]
        told = self._states.get(trial.name)
        if event["event"] in ("begin", "report") or (trial.ended and trial.state != told):
            self._states[trial.name] = trial.state
            self._stream.write(news(trial, history, self._pace, time.monotonic()) + "\n")
            self._stream.flush()

    def _draw(self) -> None:
        size = _size(self._stream)
        lines = self.lines(size[0] - 1, size[1] - 1)
        before, old_size = self._drawn
        up = f"\x1b[{before}A\r" if before and old_size == size else ""  # a terminal of a new size has moved its lines
        below = "\x1b[J" if before > len(lines) or not up else ""
        self._stream.write(_FRAME + up + "".join(f"{line}\x1b[K\n" for line in lines) + below + _FRAME_END)
        self._stream.flush()
        self._drawn = (len(lines), size)

    def _tick(self) -> None:
        while not self._done.wait(TICK):
            with self._lock:
                self._draw()


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return size.columns or 80, size.lines or 24
