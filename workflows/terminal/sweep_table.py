"""What a person sees of a sweep that runs: a table in a terminal, and a line for each event in a log file."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from preprocess.live_line import clock, short
from train.sweep.trial_result import is_number, short_names, shown

TICK = 1.0  # seconds between two drawings of the clock
_FRAME, _FRAME_END = "\x1b[?2026h\x1b[?7l", "\x1b[?7h\x1b[?2026l"  # one update for the eye, and no line wraps


class SweepTable:
    """Shows the trials of a sweep: `with SweepTable(reports=5) as table: run_sweep(..., progress=table)`.

    A frame is written over the last one in a single piece, cut to the terminal's width and height; where the table is
    higher, trials that train stand first, then the best ones.

    Args:
        reports: of a trial that is trained to its end, for the time left.
        stream: standard error by default.
    """

    def __init__(self, *, reports: int, stream: TextIO | None = None) -> None:
        self._reports = reports
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._trials: dict[str, dict[str, Any]] = {}
        self._total = self._ended = 0
        self._before: float | None = None  # trials and parts of trials that an earlier, killed command had done
        self._start = time.monotonic()
        self._origin: float | None = None  # when the first trial began to train
        self._drawn = (0, (0, 0))  # lines of the last frame, and the terminal's size then
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Take in one report, or the end of a trial."""
        with self._lock:
            known = self._trials.get(line["trial"], {})
            news = {**known, **line, "time": time.monotonic()}
            self._trials[line["trial"]] = news
            self._total, self._ended = line.get("trials", self._total), line["ended"]
            if self._before is None:
                self._before = max(0, self._ended - (line["event"] not in ("begin", "report")))
            if self._origin is None and line["event"] != "begin":  # the start of workers is no part of the pace
                self._origin = max(self._start, news["time"] - line.get("train_seconds", 0.0))
            if not known and line["event"] == "begin":
                self._before += line.get("report", 0) / self._reports
            if self._live:
                self._draw()
            elif line["event"] != "end" or _state(known) != _state(news):  # which the last report had said
                self._stream.write(self._event(news) + "\n")
                self._stream.flush()

    def lines(self, width: int, height: int) -> list[str]:
        """The frame as it stands, at most `height` lines of at most `width` characters."""
        if not self._trials:
            return [_cut(f"sweep  begins · {clock(time.monotonic() - self._start)}", width)]
        rows = [self._row(name, trial) for name, trial in sorted(self._trials.items(), key=self._place)]
        hidden = len(rows) - max(height - 2, 1)
        if hidden > 0:
            rows = rows[: max(height - 3, 0)]
        header = ("trial", "settings", "step", "loss", "chars/s", "state", "left")
        widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
        room = width - sum(widths) + widths[1] - 2 * (len(header) - 1)
        widths[1] = max(8, min(widths[1], room))
        text = [self.summary(), *(_joined(row, widths) for row in (header, *rows))]
        if hidden > 0:
            text.append(f"and {hidden + 1} more")
        return [_cut(line, width) for line in text[:height]]

    def summary(self) -> str:
        """Trials ended, the best loss, the clock and the time left."""
        parts = [f"sweep  {self._ended}/{self._total or '?'} trials ended"]
        furthest = max((t.get("report", t.get("step", 0)) for t in self._trials.values()), default=0)
        losses = [
            (trial["validation_loss"], name, trial.get("step", 0))
            for name, trial in self._trials.items()
            if is_number(trial.get("validation_loss")) and trial.get("report", trial.get("step", 0)) == furthest
        ]
        if losses:
            loss, name, step = min(losses)
            parts.append(f"best at step {step:,}: {loss:.3f} ({name})")
        parts.append(clock(time.monotonic() - self._start))
        left = self._left()
        return " · ".join([*parts, f"about {clock(left)} left"] if left is not None else parts)

    def __enter__(self) -> "SweepTable":
        if self._live:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        with self._lock:
            if self._live and self._trials:
                self._draw()

    def _place(self, item: tuple[str, dict[str, Any]]) -> tuple[int, float, float, str]:
        name, trial = item
        loss = trial.get("validation_loss")
        running = _state(trial) == "running"
        return (
            0 if running else 1 + (_state(trial) == "failed"),
            0 if running else -trial.get("report", trial.get("step", 0)),
            loss if is_number(loss) and not running else 0.0,
            name,
        )

    def _row(self, name: str, trial: Mapping[str, Any]) -> tuple[str, ...]:
        values = trial.get("values", {})
        keys = sorted(values)
        settings = " ".join(f"{key}={shown(values[full])}" for key, full in zip(short_names(keys), keys, strict=True))
        loss, rate, left = trial.get("validation_loss"), trial.get("characters_per_second"), self._trial_left(trial)
        return (
            name,
            settings,
            f"{trial['step']:,}" if "step" in trial else "",
            f"{loss:.4f}" if is_number(loss) else "",
            short(rate) if is_number(rate) else "",
            _state(trial),
            "" if left is None else clock(left),
        )

    def _event(self, trial: Mapping[str, Any]) -> str:
        name, _, step, loss, rate, state, _ = self._row(trial["trial"], trial)
        parts = [name, state if state != "failed" else f"failed: {trial.get('error') or 'no message'}"]
        parts += [f"step {step}"] * bool(step) + [f"loss {loss}"] * bool(loss) + [f"{rate} characters/s"] * bool(rate)
        return "  ".join(parts) + "  |  " + self.summary()

    def _trial_left(self, trial: Mapping[str, Any]) -> float | None:
        """Seconds until its last report, if it is not stopped before."""
        made, used = trial.get("report"), trial.get("train_seconds")
        if _state(trial) != "running" or not made or not is_number(used):
            return None
        return max(0.0, used / made * (self._reports - made) - (time.monotonic() - trial["time"]))

    def _left(self) -> float | None:
        """Seconds until the last trial ends, at the pace since the first one of this command began."""
        going = [trial for trial in self._trials.values() if _state(trial) == "running"]
        share = sum(min(trial.get("report", 0) / self._reports, 1.0) for trial in going)
        done = self._ended - (self._before or 0) + share
        if done <= 0 or not self._total or self._ended >= self._total or self._origin is None:
            return None
        return (time.monotonic() - self._origin) / done * (self._total - self._ended - share)

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


def _state(trial: Mapping[str, Any]) -> str:
    return trial.get("state") or {"end": "stopped", "error": "failed"}.get(trial.get("event", ""), "running")


def _joined(row: tuple[str, ...], widths: list[int]) -> str:
    right = {2, 3, 4, 6}
    cells = [
        cell.rjust(width) if column in right else _cut(cell, width).ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return size.columns or 80, size.lines or 24
