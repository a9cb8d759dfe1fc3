"""One line on standard error that says how far a long job is; all parts show theirs through it."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from typing_extensions import Self

from tokenfree.workflows.terminal.frame import Frame

LOG_INTERVAL = 10.0  # seconds between lines where the output is no terminal
_LIVE_INTERVAL = 0.1  # where it is one


class LiveLine:
    """A line that is drawn over itself in a terminal, and written anew every `interval` seconds in a log file.

    Args:
        stream: standard error by default.
        interval: seconds between two lines of a log file.
    """

    def __init__(self, stream: TextIO | None = None, *, interval: float = LOG_INTERVAL) -> None:
        self.stream = sys.stderr if stream is None else stream
        self._frame = Frame(self.stream)
        self.live = self._frame.live
        self.interval = _LIVE_INTERVAL if self.live else interval
        self.shown = ""  # what is not kept yet
        self.time = float("-inf") if self.live else time.monotonic()  # of the last line written

    def show(self, text: str, *, final: bool = False) -> None:
        """Show `text` in place of the last one, unless that is too recent; a final one is shown at once and stays."""
        now = time.monotonic()
        due = final or now - self.time >= self.interval
        if due:
            self.time = now
            if not self.live:
                self._log(text)
            elif final:
                self._frame.finish(text)
            else:
                self._frame.draw([text])
        self.shown = "" if final or (due and not self.live) else text

    def message(self, text: str) -> None:
        """Write `text` as a line of its own, above the live one."""
        if self.live:
            self._frame.above(text)
        else:
            self._log(text)

    def clear(self) -> None:
        """Forget what is shown, so that plain lines can follow."""
        if self.live and self.shown:
            self._frame.clear()
        self.shown = ""

    def close(self) -> None:
        """Keep what is shown and move to a fresh line."""
        if self.shown:
            self.show(self.shown, final=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _log(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()


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
