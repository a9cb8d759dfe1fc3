"""The table of a sweep that runs: what stands in it, how it fits a terminal, and what a log file gets instead."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.train.sweep.history import Event, History
from tokenfree.train.sweep.recipe import ERROR, SCORE, Asha
from tokenfree.workflows.terminal import sweep as sweep_table
from tokenfree.workflows.terminal.sweep import SweepTable


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, resize: Callable[[int, int], None]) -> Callable[[float], None]:
    """Sets the clock, which begins at 0; the size of the terminal is 80 by 10."""
    monkeypatch.setattr(sweep_table.time, "monotonic", lambda: 0.0)
    resize(80, 10)
    return lambda seconds: monkeypatch.setattr(sweep_table.time, "monotonic", lambda: seconds)


class Sweep:
    """A sweep whose trials have three reports; tells `tables` of every event."""

    def __init__(self, *tables: SweepTable, trials: int = 4, reports: int = 3) -> None:
        self.history = History(seeds=1, reports=reports)
        self._tables = list(tables)
        self.tell({"event": "start", "settings": trials})
        for setting in range(trials):
            values = {"model.downsampler.rate": setting, "train.seed": 1}
            self.tell({"event": "propose", "setting": setting, "values": values})

    def show_in(self, table: SweepTable) -> None:
        """From now on, to a command that goes on with the sweep."""
        self._tables = [table]
        self.tell({"event": "start", "settings": len(self.history.trials)})

    def tell(self, event: Event) -> None:
        self.history = self.history.after(event)
        for table in self._tables:
            table(event, self.history)

    def begin(self, trial: int) -> None:
        self.tell({"event": "begin", "trial": f"trial_{trial:03d}"})

    def report(self, trial: int, number: int, loss: float, verdict: str = "go") -> None:
        report = {
            "report": number, "step": 10 * number, "validation_loss": loss, "characters_per_second": 12_340.0,
            "train_seconds": 20.0 * number,
        }  # fmt: skip
        self.tell({"event": "report", "trial": f"trial_{trial:03d}", "verdict": verdict, "report": report})

    def fail(self, trial: int) -> None:
        self.tell({"event": "failure", "trial": f"trial_{trial:03d}", "error": "ValueError: no"})


def test_a_sweep_of_a_task_shows_scores_the_highest_first(at: Callable[[float], None]) -> None:
    table = SweepTable(io.StringIO())
    for target, word, best in ((SCORE, "score", 1), (ERROR, "error", 0)):
        history = History(seeds=1, reports=1, target=target).after({"event": "start", "settings": 2})
        for number, value in enumerate((0.25, 0.75)):
            history = history.after({"event": "propose", "setting": number, "values": {"train.learning_rate": number}})
            report = {"report": 1, "step": 5, "validation_loss": 0.1 + number, target.metric: value}
            event = {"event": "report", "trial": f"trial_00{number}", "verdict": "go", "report": report}
            history = history.after(event)
            table(event, history)
        summary, header, *rows = table.lines(100, 10)
        assert header.split() == ["trial", "settings", "step", word, "chars/s", "state", "left"]
        assert f"best at step 5: {(0.25, 0.75)[best]:.3f} (trial_00{best})" in summary
        assert [row.split()[0] for row in rows] == [f"trial_00{best}", f"trial_00{1 - best}"]


def test_a_row_says_settings_step_loss_rate_state_and_time_left(at: Callable[[float], None]) -> None:
    table = SweepTable(io.StringIO())
    sweep = Sweep(table)
    sweep.begin(0)
    at(30)
    sweep.report(0, 1, 4.5)
    at(35)
    summary, header, row = table.lines(100, 10)
    assert summary == "sweep  0/4 ended · best at step 10: 4.500 (trial_000) · 0:35 · about 3:35 left"
    assert table.lines(len(summary), 1) == [summary]
    assert table.lines(len(summary) - 1, 1) == [summary[:-2] + "…"]
    assert header.split() == ["trial", "settings", "step", "loss", "chars/s", "state", "left"]
    assert row.split() == ["trial_000", "rate=0", "seed=1", "10", "4.5000", "12.3k", "running", "0:35"]


def test_training_trials_stand_first_then_the_best_of_those_that_got_furthest(at: Callable[[float], None]) -> None:
    table = SweepTable(io.StringIO())
    sweep = Sweep(table, trials=6)
    sweep.report(0, 1, 1.0, "stop")
    sweep.report(1, 3, 3.0)
    sweep.report(2, 3, 2.0)
    sweep.begin(3)
    sweep.report(3, 1, 9.0)
    sweep.begin(4)
    sweep.report(4, 2, 0.5)
    for _ in range(2):
        sweep.begin(4)
        sweep.fail(4)
    summary, _, *rows = table.lines(100, 10)
    assert [row.split()[0] for row in rows] == [f"trial_00{number}" for number in (3, 2, 1, 0, 4)]
    assert "best at step 30: 2.000 (trial_002)" in summary


def test_before_the_first_trial_there_is_a_clock(at: Callable[[float], None]) -> None:
    table = SweepTable(io.StringIO())
    Sweep(table)
    at(7)
    assert table.lines(100, 10) == ["sweep  begins · 0:07"]


@pytest.mark.parametrize(("width", "height"), [(44, 5), (79, 9), (20, 3), (200, 50)])
def test_it_fits_the_terminal(at: Callable[[float], None], width: int, height: int) -> None:
    table = SweepTable(io.StringIO())
    sweep = Sweep(table, trials=30)
    for trial in range(30):
        sweep.report(trial, 1, 4.0)
    lines = table.lines(width, height)
    assert len(lines) == min(height, 32)
    assert max(map(len, lines)) <= width
    if 3 < height < 30:
        assert lines[-1] == f"and {30 - (height - 3)} more"


def test_searched_values_are_never_cut(at: Callable[[float], None]) -> None:
    table = SweepTable(io.StringIO())
    sweep = Sweep(table, trials=0)
    values = {
        "model.embedder.buckets": 16384, "model.downsampler.rate": 4, "model.trunk.attention.alpha": -0.4375,
        "train.learning_rate": 0.001234, "train.optimizer.name": "adamw", "model.trunk.layers": 12,
    }  # fmt: skip
    short = {"model.downsampler.rate": 2}
    for setting, each in enumerate((values, short)):
        sweep.tell({"event": "propose", "setting": setting, "values": each})
        sweep.report(setting, 1, 4.5)
    _, header, *rows = lines = table.lines(80, 24)
    assert max(map(len, lines)) <= 80
    for part in ("buckets=16384", "rate=4", "alpha=-0.4375", "learning_rate=0.001234", "optimizer.name=adamw"):
        assert part in " ".join(rows).split()
    assert header.split() == ["trial", "settings", "loss", "state"]
    assert [row.split()[0] for row in rows if not row.startswith(" ")] == ["trial_000", "trial_001"]
    assert table.lines(80, 4) == [lines[0], header, "and 2 more"]  # a trial is shown whole or not at all
    wide = table.lines(160, 24)
    assert wide[1].split() == ["trial", "settings", "step", "loss", "chars/s", "state", "left"]
    assert len(wide) == 4


def test_the_time_left_is_within_a_factor_of_two(at: Callable[[float], None]) -> None:
    """Two side by side that take 20 s a report, after 15 s for the start of workers; ASHA stops two of three."""
    table = SweepTable(io.StringIO(), scheduler=Asha(grace=1, reduction=3))
    sweep = Sweep(table, trials=18, reports=9)
    lasts = [{0: 9, 9: 9, 3: 3, 6: 3, 12: 3, 15: 3}.get(trial, 1) for trial in range(18)]
    said, waiting = list[Any](), list(range(18))
    running = {slot: (waiting.pop(0), 0) for slot in range(2)}
    for trial, _ in running.values():
        sweep.begin(trial)
    seconds = [35.0, 35.0]
    while running:
        slot = min(running, key=lambda slot: seconds[slot])
        at(now := seconds[slot])
        trial, number = running[slot][0], running[slot][1] + 1
        sweep.report(trial, number, 1.0, "stop" if number == lasts[trial] else "go")
        running[slot], seconds[slot] = (trial, number), now + 20
        if number == lasts[trial]:
            del running[slot]
            if waiting:
                running[slot] = waiting.pop(0), 0
                sweep.begin(running[slot][0])
        said.append((now, table.pace.left(sweep.history, now)))
    for then, left in said:
        if now - then > 60:
            assert left is not None
            assert 0.5 < left / (now - then) < 2, (then, left, now)


def test_the_table_is_drawn_over_the_last_one_and_stays(at: Callable[[float], None]) -> None:
    stream = Terminal()
    with SweepTable(stream) as table:
        sweep = Sweep(table)
        for trial in range(3):
            sweep.report(trial, 1, 4.0 - trial)
        sweep.report(0, 2, 1.0)
    assert stream.screen() == [*table.lines(79, 9), ""]


def test_a_log_file_gets_a_line_for_what_is_new_of_a_trial(at: Callable[[float], None]) -> None:
    stream = io.StringIO()
    with SweepTable(stream) as table:
        sweep = Sweep(table)
        sweep.begin(0)
        sweep.report(0, 1, 4.0)
        sweep.report(0, 3, 3.0)
        sweep.begin(1)
        sweep.fail(1)  # it is tried once more
        sweep.fail(1)
        sweep.report(2, 1, 5.0, "wait")
        sweep.tell({"event": "verdict", "trial": "trial_002", "verdict": "stop"})
    lines = stream.getvalue().splitlines()
    assert [line.split("  |  ")[0] for line in lines] == [
        "trial_000  running",
        "trial_000  running  step 10  loss 4.0000  12.3k characters/s",
        "trial_000  finished  step 30  loss 3.0000  12.3k characters/s",
        "trial_001  running",
        "trial_001  failed: ValueError: no",
        "trial_002  running  step 10  loss 5.0000  12.3k characters/s",
        "trial_002  stopped  step 10  loss 5.0000  12.3k characters/s",
    ]
    assert [line.split("  |  ")[1].split(" · ")[0] for line in lines] == [
        f"sweep  {ended}/4 ended" for ended in (0, 0, 1, 1, 2, 2, 3)
    ]
    assert "\x1b" not in stream.getvalue()


def test_what_of_ray_was_lost_stands_above_the_table_or_in_a_line_and_quiet_shows_none(
    at: Callable[[float], None],
) -> None:
    terminal, log, quiet = Terminal(), io.StringIO(), io.StringIO()
    lost = {"event": "lost", "message": "the Ray node was lost\x1b[31m; starting Ray"}
    with SweepTable(terminal) as table, SweepTable(log) as lines, SweepTable(quiet, verbosity="quiet") as silent:
        sweep = Sweep(table, lines, silent)
        sweep.report(0, 1, 4.0)
        for each in (table, lines, silent):
            each(lost, sweep.history)
        sweep.report(0, 2, 3.0)
    shown = "the Ray node was lost\\u001b[31m; starting Ray"
    assert terminal.screen() == [shown, *table.lines(79, 9), ""]
    assert shown in log.getvalue().splitlines()
    assert quiet.getvalue() == ""


def test_the_time_left_is_that_of_this_command(at: Callable[[float], None]) -> None:
    """Two of four trials and half of another had been done before a kill."""
    sweep = Sweep(reports=2)
    for trial in (0, 1):
        sweep.report(trial, 2, 5.0)
    sweep.report(3, 1, 4.0)
    table = SweepTable(io.StringIO())
    sweep.show_in(table)
    assert table.lines(100, 1)[0].endswith("2/4 ended · best at step 20: 5.000 (trial_000) · 0:00")
    sweep.begin(2)
    at(10)  # of which none were for the start of workers: the trial trained for 40 s, as it says
    sweep.report(2, 2, 4.0)
    assert table.lines(100, 1)[0].endswith("best at step 20: 4.000 (trial_002) · 0:10 · about 0:05 left")
    sweep.begin(3)
    sweep.report(3, 2, 4.5)
    assert table.lines(100, 1)[0].endswith("4/4 ended · best at step 20: 4.000 (trial_002) · 0:10")


def test_a_sweep_that_goes_on_first_shows_the_trials_that_have_ended(at: Callable[[float], None]) -> None:
    sweep = Sweep()
    sweep.report(0, 3, 3.0)
    sweep.report(1, 1, 5.0, "stop")
    sweep.report(2, 1, 4.0)
    log, screen = SweepTable(stream := io.StringIO()), Terminal()
    log({"event": "resume"}, sweep.history)
    with SweepTable(screen) as terminal:
        terminal({"event": "resume"}, sweep.history)
    assert [line.split()[0] for line in screen.screen()[:-1]] == [
        "sweep",
        "trial",
        "trial_002",
        "trial_000",
        "trial_001",
    ]
    lines = stream.getvalue().splitlines()
    assert [line.split("  |  ")[0] for line in lines] == [
        "trial_000  finished  step 30  loss 3.0000  12.3k characters/s",
        "trial_001  stopped  step 10  loss 5.0000  12.3k characters/s",
    ]
    sweep.show_in(log)
    sweep.tell({"event": "verdict", "trial": "trial_001", "verdict": "stop"})
    assert stream.getvalue().splitlines() == lines  # told already
