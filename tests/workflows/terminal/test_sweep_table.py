"""The table of a sweep that runs: what stands in it, how it fits a terminal, and what a log file gets instead."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest

from workflows import sweep_table
from workflows.sweep_table import SweepTable


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


class Screen:
    """What a terminal shows after the table's control sequences; fails on one that it does not know."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = 0

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[?\d]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", text):
            if part == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part.endswith("A") and part[0] == "\x1b":
                self.row -= int(part[2:-1])
                assert self.row >= 0
            elif part == "\x1b[J":
                del self.lines[self.row :]
                self.lines.append("")
            elif part == "\x1b[K" or part.startswith("\x1b[?") or part == "\r":
                pass
            else:
                assert part[0] != "\x1b", part
                self.lines[self.row] = part


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock, which begins at 0; the size of the terminal is 80 by 10."""
    monkeypatch.setattr(sweep_table.time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(sweep_table, "_size", lambda stream: (80, 10))
    return lambda seconds: monkeypatch.setattr(sweep_table.time, "monotonic", lambda: seconds)


def line(trial: int, report: int, loss: float, *, event: str = "report", ended: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "event": event, "trial": f"trial_{trial:03d}", "values": {"model.downsampler.rate": trial, "train.seed": 1},
        "state": "running", "ended": ended, "trials": 4, "report": report, "step": 10 * report,
        "validation_loss": loss, "characters_per_second": 12_340.0, "train_seconds": 20.0 * report, **more,
    }  # fmt: skip


def test_a_row_says_settings_step_loss_rate_state_and_time_left(at: Callable[[float], None]) -> None:
    table = SweepTable(reports=3, stream=io.StringIO())
    at(30)
    table(line(0, 1, 4.5))
    at(35)
    summary, header, row = table.lines(100, 10)
    assert summary == "sweep  0/4 trials ended · best at step 10: 4.500 (trial_000) · 0:35 · about 4:35 left"
    assert header.split() == ["trial", "settings", "step", "loss", "chars/s", "state", "left"]
    assert row.split() == ["trial_000", "rate=0", "seed=1", "10", "4.5000", "12.3k", "running", "0:35"]


def test_training_trials_stand_first_then_the_best_of_those_that_got_furthest(at: Callable[[float], None]) -> None:
    table = SweepTable(reports=3, stream=io.StringIO())
    table(line(0, 1, 1.0, event="end", state="stopped", ended=1))
    table(line(1, 3, 3.0, event="end", state="finished", ended=2))
    table(line(2, 3, 2.0, event="end", state="finished", ended=3))
    table(line(3, 1, 9.0, ended=3))
    rows = table.lines(100, 10)[2:]
    assert [row.split()[0] for row in rows] == ["trial_003", "trial_002", "trial_001", "trial_000"]
    assert "best at step 30: 2.000 (trial_002)" in table.summary()


@pytest.mark.parametrize(("width", "height"), [(40, 5), (79, 9), (20, 3), (200, 50)])
def test_it_fits_the_terminal(at: Callable[[float], None], width: int, height: int) -> None:
    table = SweepTable(reports=3, stream=io.StringIO())
    for trial in range(30):
        table(line(trial, 1, 4.0, trials=30))
    lines = table.lines(width, height)
    assert len(lines) == min(height, 32)
    assert max(map(len, lines)) <= width
    if 3 < height < 30:
        assert lines[-1] == f"and {30 - (height - 3)} more"


def test_frames_are_written_over_one_another_each_in_one_piece(at: Callable[[float], None]) -> None:
    stream, screen, pieces = Terminal(), Screen(), []
    stream.write = lambda text: pieces.append(text) or len(text)  # type: ignore[method-assign]
    with SweepTable(reports=3, stream=stream) as table:
        for trial in range(3):
            table(line(trial, 1, 4.0 - trial))
        table(line(0, 2, 1.0))
    assert len(pieces) == 5  # one for each event, and the last one
    screen.write("".join(pieces))
    assert screen.lines == [*table.lines(79, 9), ""]
    assert not any("\x1b[2J" in piece for piece in pieces)  # which would flicker


def test_after_a_resize_the_next_frame_stands_below(
    at: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    table = SweepTable(reports=3, stream=stream)
    table(line(0, 1, 4.0))
    monkeypatch.setattr(sweep_table, "_size", lambda stream: (60, 10))
    before = len(stream.getvalue())
    table(line(0, 2, 3.0))
    assert not re.search(r"\x1b\[\d+A", stream.getvalue()[before:])


def test_a_log_file_gets_a_line_an_event(at: Callable[[float], None]) -> None:
    stream = io.StringIO()
    with SweepTable(reports=3, stream=stream) as table:
        table(line(0, 1, 4.0))
        table(line(0, 3, 3.0, state="finished", ended=1))
        table(line(0, 3, 3.0, event="end", state="finished", ended=1))  # says nothing new
        table({"event": "error", "trial": "trial_001", "values": {}, "state": "failed", "ended": 2, "trials": 4,
               "error": "ValueError: no"})  # fmt: skip
    first, second, third = stream.getvalue().splitlines()
    assert first.startswith("trial_000  running  step 10  loss 4.0000  12.3k characters/s  |  sweep  0/4 trials ended")
    assert second.startswith("trial_000  finished  step 30  loss 3.0000")
    assert third.startswith("trial_001  failed: ValueError: no  |  sweep  2/4 trials ended")
    assert "\x1b" not in stream.getvalue()


def test_the_time_left_is_that_of_this_command(at: Callable[[float], None]) -> None:
    table = SweepTable(reports=2, stream=io.StringIO())
    at(10)
    table(line(2, 2, 4.0, event="end", state="finished", ended=3))  # two had ended before a kill, this one trains 40 s
    assert table.summary().endswith("3/4 trials ended · best at step 20: 4.000 (trial_002) · 0:10 · about 0:10 left")
    table(line(3, 1, 4.0, event="begin", ended=3))  # half of it was done before the kill
    assert table.summary().endswith("about 0:05 left")
    table(line(3, 2, 4.0, event="end", state="finished", ended=4))
    assert table.summary().endswith("0:10")
