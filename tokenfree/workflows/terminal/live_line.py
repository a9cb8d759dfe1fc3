"""One line on standard error that says how far a long job is; all parts show theirs through it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

from rich.cells import cell_len
from typing_extensions import Self

from tokenfree.preprocess.common.printable import one_line
from tokenfree.workflows.terminal.frame import Frame
from tokenfree.workflows.terminal.verbosity import Verbosity

LOG_INTERVAL = 10.0  # seconds between lines where the output is no terminal
_LIVE_INTERVAL = 0.1  # where it is one
_TICK = 1.0  # seconds between two looks at the clock


class LiveLine:
    """A line that is drawn over itself in a terminal, and written anew every `interval` seconds in a log file.

    It has parts, the most important first. A terminal shows as many of them as fit into a line; a log file has them
    all, after the time of the day.

    Args:
        stream: standard error by default.
        interval: seconds between two lines of a log file.
        verbosity: `quiet` leaves only messages, `verbose` writes lines as in a log file.
    """

    separator = "  "

    def __init__(
        self, stream: TextIO | None = None, *, interval: float = LOG_INTERVAL, verbosity: Verbosity = "normal"
    ) -> None:
        self.stream = sys.stderr if stream is None else stream
        self._frame = Frame(self.stream)
        self.live = self._frame.live and verbosity == "normal"
        self._quiet = verbosity == "quiet"
        self.interval = _LIVE_INTERVAL if self.live else interval
        self.shown: tuple[str, ...] = ()  # what is not kept yet
        self.time = float("-inf") if self.live else time.monotonic()  # of the last line written
        self._waiting: threading.Event | None = None  # set when the wait is over
        self._drawing = threading.Lock()

    def show(self, *parts: str, final: bool = False) -> None:
        """Show `parts` in place of the last ones, unless those are too new; final ones are shown at once and stay."""
        if self._quiet:
            return
        now = time.monotonic()
        due = final or now - self.time >= self.interval
        if due:
            self._end_wait()
            self.time = now
            if not self.live:
                self._log(self.separator.join(parts))
            elif final:
                self._frame.finish(self._fitted(parts))
            else:
                self._frame.draw([self._fitted(parts)])
        self.shown = () if final or (due and not self.live) else parts

    def message(self, text: str) -> None:
        """Write `text` as a line of its own, above the live one."""
        if self.live:
            with self._drawing:
                self._frame.above(one_line(text))
        else:
            self._log(text)

    def wait(self, text: str) -> None:
        """Show `text` and for how long it has been shown, until there is something else to show."""
        if self._quiet:
            return None
        if not self.live:
            return self._log(text)
        self._end_wait()
        over, began = threading.Event(), time.monotonic()
        self._waiting = over

        def tick() -> None:
            while True:
                with self._drawing:
                    if over.is_set():
                        return
                    self._frame.draw([self._fitted((clock(int(time.monotonic() - began)), text))])
                over.wait(_TICK)

        threading.Thread(target=tick, daemon=True).start()

    def clear(self) -> None:
        """Forget what is shown, so that plain lines can follow."""
        self._end_wait()
        if self.live and self.shown:
            self._frame.clear()
        self.shown = ()

    def close(self) -> None:
        """Keep what is shown and move to a fresh line."""
        self._end_wait()
        if self.shown:
            self.show(*self.shown, final=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _end_wait(self) -> None:
        if self._waiting is None:
            return
        with self._drawing:
            self._waiting.set()
            self._waiting = None
            self._frame.clear()

    def _fitted(self, parts: tuple[str, ...]) -> str:
        return fitted([one_line(part) for part in parts], self.separator, self._frame.size[0] - 1)

    def _log(self, text: str) -> None:
        self.stream.write(f"{time.strftime('%H:%M:%S')}  {one_line(text)}\n")
        self.stream.flush()


def fitted(parts: Sequence[str], separator: str, width: int) -> str:
    """The parts from the left that fit into `width` columns: the first one at least."""
    kept = 1
    while kept < len(parts) and cell_len(separator.join(parts[: kept + 1])) <= width:
        kept += 1
    return separator.join(parts[:kept])


def short(number: float) -> str:
    """A number in a few characters: 950, 1.2k, 3.4M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{suffix}"
    return f"{number:.0f}"


def clock(seconds: float) -> str:
    """A time as 0:07 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
