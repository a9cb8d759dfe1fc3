"""The live line of downloads."""

from __future__ import annotations

import time
from typing import TextIO

from tokenfree.preprocess.download.download import Progress
from tokenfree.workflows.terminal.live_line import LiveLine
from tokenfree.workflows.terminal.verbosity import Verbosity


class DownloadLine(LiveLine):
    """The live line of a download: wiki, bytes of all files, rate and time left; or why nothing moves."""

    separator = " · "

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        super().__init__(stream, verbosity=verbosity)
        self.start: float | None = None

    def __call__(self, progress: Progress) -> None:
        """Show how far the files are."""
        now = time.monotonic()
        if self.start is None:
            self.start = now
        of = "" if progress.total is None else f" of {progress.total / 1e6:,.1f}"
        wiki = progress.name.partition("-pages")[0]  # whole names would wrap the line
        parts = [wiki, f"{progress.done / 1e6:,.1f}{of} MB"]
        if now - self.start > 1:
            rate = progress.received / (now - self.start)
            parts.append(f"{rate / 1e6:.1f} MB/s")
            if progress.total is not None and progress.done < progress.total:
                minutes, seconds = divmod(int((progress.total - progress.done) / rate), 60)
                parts.append(f"{minutes}:{seconds:02} left")
        self.show(*parts)
