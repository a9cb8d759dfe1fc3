"""What a person sees of a sweep that runs: a table in a terminal, and a line for each event in a log file."""

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from tokenfree.preprocess.common.printable import one_line
from tokenfree.train.sweep.control.history import Event, History, TrialState
from tokenfree.workflows.terminal.frame import Frame
from tokenfree.workflows.terminal.sweep.frame import frame, news
from tokenfree.workflows.terminal.sweep.pace import SweepPace
from tokenfree.workflows.terminal.verbosity import Verbosity

TICK = 1.0  # seconds between two drawings of the clock


class SweepTable:
    """Shows the trials of a sweep: `with SweepTable() as table: run_sweep(..., progress=table)`.

    Of a sweep that goes on, the trials that have ended are shown before anything starts.

    In a terminal a frame is written over the last one in a single piece, cut to the terminal's width and height; where
    the table is higher, trials that train stand first, then the best ones.

    Args:
        stream: standard error by default.
        verbosity: `quiet` shows nothing, `verbose` writes lines as in a log file.
    """

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._frame = Frame(self._stream)
        self._live = self._frame.live and verbosity == "normal"
        self._quiet = verbosity == "quiet"
        self._pace = SweepPace(time.monotonic())
        self._history = History(seeds=1, reports=1)  # after the last event
        self._states: dict[str, str] = {}  # of the trials, as the log says
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __call__(self, event: Event, history: History) -> None:
        """Show an event, with what is known after it."""
        with self._lock:
            self._history = history
            if event["event"] == "lost":
                self._tell(event["message"])
                return
            self._pace.hear(event, history, time.monotonic())
            if self._live:
                self._frame.draw(self._lines_that_fit())
            elif self._quiet:
                return
            elif event["event"] == "resume":
                self._log_ended(history)
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
                self._frame.finish("\n".join(self._lines_that_fit()))

    def _tell(self, message: str) -> None:
        """What the trials do not tell, above the table or as a line of its own."""
        if self._live:
            self._frame.above(one_line(message))
        elif not self._quiet:
            self._stream.write(one_line(message) + "\n")
            self._stream.flush()

    def _log(self, event: Event, history: History) -> None:
        """A line for what begins or reports, and for a trial that came into another state by something else."""
        trial = history.trials[event["trial"]]
        told = self._states.get(trial.name)
        if event["event"] in ("begin", "report") or (trial.ended and trial.state != told):
            self._write(trial, history)

    def _log_ended(self, history: History) -> None:
        """A line for each trial that ended in earlier commands."""
        for trial in history.trials.values():
            if trial.ended:
                self._write(trial, history)

    def _write(self, trial: TrialState, history: History) -> None:
        self._states[trial.name] = trial.state
        self._stream.write(one_line(news(trial, history, self._pace, time.monotonic())) + "\n")
        self._stream.flush()

    def _lines_that_fit(self) -> list[str]:
        columns, rows = self._frame.size
        return self.lines(columns - 1, rows - 1)

    def _tick(self) -> None:
        while not self._done.wait(TICK):
            with self._lock:
                self._frame.draw(self._lines_that_fit())
