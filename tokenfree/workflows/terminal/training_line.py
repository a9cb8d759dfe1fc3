"""The live line of a training run: rewritten in place on a terminal, a plain line now and then in a log file."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, TextIO

from tokenfree.workflows.terminal.live_line import LOG_INTERVAL, LiveLine, clock, short
from tokenfree.workflows.terminal.verbosity import Verbosity

_RECENT = 20  # steps over which speeds are averaged


class ProgressLine(LiveLine):
    """Shows the newest line of metrics: `with ProgressLine(steps=1000) as progress: pretrain(..., progress=progress)`.

    Args:
        steps: of the whole run, for the time left.
        stream: standard error by default.
        interval: seconds between lines where the stream is no terminal.
        verbosity: see `LiveLine`.
    """

    def __init__(
        self,
        *,
        steps: int,
        stream: TextIO | None = None,
        interval: float = LOG_INTERVAL,
        verbosity: Verbosity = "normal",
    ) -> None:
        super().__init__(stream, interval=interval, verbosity=verbosity)
        self.time = float("-inf")  # the first line is shown at once
        self._steps = steps
        self._recent: collections.deque[Mapping[str, Any]] = collections.deque(maxlen=_RECENT)
        self._validation: float | None = None
        self._restarts = 0

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Take a line of metrics.jsonl or events.jsonl."""
        if "event" in line:
            self._event(line)
        elif "validation_loss" in line:
            self._validation = line["validation_loss"]
            if self._recent:
                self.show(*self.parts(), final=not self.live)
        else:
            self._recent.append(line)
            self.show(*self.parts(), final=line["step"] == self._steps and not self.live)

    def parts(self) -> list[str]:
        """The line as it stands, such as `step 120/1,000`, `loss 4.312`, `held-out 4.401`, `8:15 left` and so on."""
        recent, last = self._recent, self._recent[-1]
        seconds = sum(line["seconds"] for line in recent)
        parts = [f"step {last['step']:,}/{self._steps:,}", f"loss {last['loss']:.3f}"]
        if self._validation is not None:
            parts.append(f"held-out {self._validation:.3f}")
        parts.append(f"{clock((self._steps - last['step']) * seconds / len(recent))} left")
        if self._restarts:
            parts.append(f"restarts {self._restarts}")
        parts.append(f"{short(sum(line['characters'] for line in recent) / seconds)} characters/s")
        if "bits_per_character" in last:
            parts.append(f"{last['bits_per_character']:.2f} bits per character")
        parts.append(f"utilisation {sum(line['utilisation'] for line in recent) / len(recent):.0%}")
        parts.append(f"data wait {sum(line['data_wait'] for line in recent) / seconds:.0%}")
        return parts

    def _event(self, line: Mapping[str, Any]) -> None:
        if line["event"] == "worker_lost":
            self._restarts += 1
        if line["event"] == "roll_back":  # the steps from there on come again
            self._recent.clear()
        if line["event"] == "launch":
            self.wait(line["message"])
        elif line.get("message"):
            self.message(line["message"])
