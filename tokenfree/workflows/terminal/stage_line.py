"""What a person sees while a command works: one live line a stage, plain lines in a log file."""

import time
from dataclasses import replace
from typing import Any, TextIO

from tokenfree.workflows.terminal.live_line import LiveLine, clock
from tokenfree.workflows.terminal.verbosity import Verbosity

_STAGE_BEFORE = {"vocabulary": "read", "finish": "build"}  # stages that count the same input splits or shards


class StageLine(LiveLine):
    """The live line of preprocessing: stage, input splits or shards done, rate and time left."""

    separator = " · "

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        super().__init__(stream, verbosity=verbosity)
        self.stage = ""
        self.first: Any = None
        self.last: Any = None
        self.start = self.changed = 0.0

    def __call__(self, progress: Any) -> None:
        """Show a `tokenfree.pipelines.progress.Progress`; one that is shown again only moves the clock."""
        now = time.monotonic()
        if self.stage and self.stage == _STAGE_BEFORE.get(progress.stage):
            self(replace(progress, stage=self.stage))  # whose end may have come between two looks
        if progress.stage != self.stage:
            self.close()
            self.stage, self.first, self.start = progress.stage, progress, now
        if progress != self.last:
            self.last, self.changed = progress, now
        characters = [f"{progress.characters:,} characters"] if progress.characters else []
        parts = [self._parts_done(), *self._left(now), clock(int(now - self.start)), *self._bytes(), *characters]
        self.show(*parts)

    def _parts_done(self) -> str:
        if self.stage == "vocabulary":  # made by one worker from all input splits
            return f"{self.stage:<11}{_trained(self.last.training)}".rstrip()
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
        return [f"about {clock(int(max(left, 0)))} left"]


def _trained(training: Any) -> str:
    """How far a `tokenfree.preprocess.features.vocabulary_process.TrainingProgress` is, in words."""
    if training is None:
        return ""
    done, total = f"{training.done:,}", f"{training.total:,}"
    return {
        "sample": f"{done} of {total} characters read",
        "candidates": "candidates sought",
        "rounds": f"round {done} of about {total}",
        "merges": f"{done} of {total} pieces",
    }[training.phase]


def counted(number: int, noun: str) -> str:
    """`1 shard`, `2 shards`, `1,000 shards`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
