"""What a person sees while a command works: one live line a stage, plain lines in a log file."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, TextIO

LOG_INTERVAL = 10.0  # seconds between lines where the output is no terminal
_STAGE_BEFORE = {"vocabulary": "read", "finish": "build"}  # stages that count the same splits or shards


class LiveLine:
    """One line that is written over in a terminal, and written anew at intervals in a log file."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.live = self.stream.isatty()
        self.shown = ""
        self.time = time.monotonic()

    def show(self, text: str, *, final: bool = False) -> None:
        """Show `text` in place of the last one; a final one stays."""
        now = time.monotonic()
        if self.live:
            self.stream.write("\r\x1b[2K" + text + ("\n" if final else ""))
        elif final or now - self.time >= LOG_INTERVAL:
            self.stream.write(text + "\n")
            self.time = now
        self.stream.flush()
        self.shown = "" if final else text

    def close(self) -> None:
        """Keep what is shown and move to a fresh line."""
        if self.shown:
            self.show(self.shown, final=True)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class StageLine(LiveLine):
    """The live line of preprocessing: stage, splits or shards done, rate and time left."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.stage = ""
        self.first: Any = None
        self.last: Any = None
        self.start = self.changed = 0.0

    def __call__(self, progress: Any) -> None:
        """Show a `pipelines.progress.Progress`; one that is shown again only moves the clock."""
        now = time.monotonic()
        if self.stage and self.stage == _STAGE_BEFORE.get(progress.stage):
            self(replace(progress, stage=self.stage))  # whose end may have come between two looks
        if progress.stage != self.stage:
            self.close()
            self.stage, self.first, self.start = progress.stage, progress, now
        if progress != self.last:
            self.last, self.changed = progress, now
        characters = [f"{progress.characters:,} characters"] if progress.characters else []
        parts = [self._parts_done(), *self._bytes(), *characters, *self._left(now), _clock(now - self.start)]
        self.show(" · ".join(parts))

    def _parts_done(self) -> str:
        if self.stage == "vocabulary":  # made by one worker from all splits
            return self.stage
        noun = "split" if self.stage == "read" else "shard"
        return f"{self.stage:<11}{self.last.done:,} of {counted(self.last.total, noun)}"

    def _bytes(self) -> list[str]:
        """Megabytes, and those of a second since the stage began; what an earlier, killed job had done counts not."""
        if not self.last.bytes or self.stage == "vocabulary":
            return []
        seconds = self.changed - self.start
        rate = f", {(self.last.bytes - self.first.bytes) / seconds / 1e6:,.1f} MB/s" if seconds > 1 else ""
        return [f"{self.last.bytes / 1e6:,.1f} MB{rate}"]

    def _left(self, now: float) -> list[str]:
        seconds, done = self.changed - self.start, self.last.done - self.first.done
        if seconds <= 1 or not done or self.last.done >= self.last.total:
            return []
        left = seconds * (self.last.total - self.last.done) / done - (now - self.changed)
        return [f"about {_clock(max(left, 0))} left"]


class SweepLine(LiveLine):
    """The live line of a sweep: trials ended, the trial that reported last, and the best loss so far."""

    def __init__(self, trials: int, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.trials = trials
        self.start = time.monotonic()
        self.best: tuple[float, str] | None = None

    def __call__(self, report: Mapping[str, Any]) -> None:
        """Show one report of a trial."""
        if "validation_loss" in report:
            candidate = (report["validation_loss"], report["trial"])
            self.best = min(self.best, candidate) if self.best else candidate
        best = f" · best {self.best[0]:.3f} ({self.best[1]})" if self.best else ""
        ended = report["ended"]
        seconds = time.monotonic() - self.start
        left = f" · {_clock(seconds * (self.trials - ended) / ended)} left" if 0 < ended < self.trials else ""
        last = f"{report['trial']} step {report.get('step', 0)} loss {report.get('validation_loss', float('nan')):.3f}"
        self.show(f"sweep      {ended}/{self.trials} trials ended · {last}{best} · {_clock(seconds)}{left}")


def counted(number: int, noun: str) -> str:
    """`1 shard`, `2 shards`, `1,000 shards`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
