"""The table of a sweep that runs: what stands in it, how it fits a terminal, and what a log file gets instead."""

import io
from collections.abc import Callable

import pytest

from tests.train.sweep.conftest import LookedUp
from tests.workflows.terminal.conftest import Terminal
from tokenfree.train.sweep.history import Event, History
from tokenfree.train.sweep.recipe import ERROR, SCORE
from tokenfree.workflows.terminal import sweep as sweep_table
from tokenfree.workflows.terminal.progress import PlainConsole
from tokenfree.workflows.terminal.sweep import SweepTable, frame, summary


def lines_of(history: History, width: int = 100, most: int = 10, seconds: float = 0.0) -> list[str]:
    """The table of a sweep in a terminal that wide."""
    PlainConsole(stream := io.StringIO(), width).print(frame(history, summary(history, seconds), most))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


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
        """From now on, to a command that resumes the sweep."""
        self._tables = [table]
        self.tell({"event": "start", "settings": len(self.history.trials)})

    def tell(self, event: Event) -> None:
        self.history.record(event)
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
    for target, word, best in ((SCORE, "score", 1), (ERROR, "error", 0)):
        history = History(seeds=1, reports=1, target=target)
        history.record({"event": "start", "settings": 2})
        for number, value in enumerate((0.25, 0.75)):
            history.record({"event": "propose", "setting": number, "values": {"train.learning_rate": number}})
            report = {"report": 1, "step": 5, "validation_loss": 0.1 + number, target.metric: value}
            event = {"event": "report", "trial": f"trial_00{number}", "verdict": "go", "report": report}
            history.record(event)
        summary, header, *rows = lines_of(history)
        assert header.split() == ["trial", "settings", "step", word, "chars/s", "state"]
        assert f"best at step 5: {(0.25, 0.75)[best]:.3f} (trial_00{best})" in summary
        assert [row.split()[0] for row in rows] == [f"trial_00{best}", f"trial_00{1 - best}"]


def test_a_row_says_settings_step_loss_rate_and_state() -> None:
    sweep = Sweep()
    sweep.begin(0)
    sweep.report(0, 1, 4.5)
    summary, header, row = lines_of(sweep.history, seconds=35)
    assert summary == "sweep  0/4 ended · best at step 10: 4.500 (trial_000) · 0:35 · about 6:25 left"
    assert lines_of(sweep.history, width=len(summary) - 1)[0].endswith("…")
    assert header.split() == ["trial", "settings", "step", "loss", "chars/s", "state"]
    assert row.split() == ["trial_000", "rate=0", "seed=1", "10", "4.5000", "12.3k", "running"]


def test_training_trials_stand_first_then_the_best_of_those_that_got_furthest() -> None:
    sweep = Sweep(trials=6)
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
    summary, _, *rows = lines_of(sweep.history)
    assert [row.split()[0] for row in rows] == [f"trial_00{number}" for number in (3, 2, 1, 0, 4)]
    assert "best at step 30: 2.000 (trial_002)" in summary
    assert len(lines_of(sweep.history, most=3)) == 2 + 3


def test_before_the_first_trial_there_is_a_clock() -> None:
    assert lines_of(Sweep().history, seconds=7) == ["sweep  0/4 ended · 0:07"]


def test_searched_values_are_never_cut() -> None:
    sweep = Sweep(trials=0)
    values = {
        "model.embedder.buckets": 16384, "model.downsampler.rate": 4, "model.trunk.attention.alpha": -0.4375,
        "train.learning_rate": 0.001234, "train.optimizer.name": "adamw", "model.trunk.layers": 12,
    }  # fmt: skip
    short = {"model.downsampler.rate": 2}
    for setting, each in enumerate((values, short)):
        sweep.tell({"event": "propose", "setting": setting, "values": each})
        sweep.report(setting, 1, 4.5)
    _, header, *rows = lines = lines_of(sweep.history, width=80)
    assert max(map(len, lines)) <= 80
    for part in (
        "buckets=16384",
        "rate=4",
        "alpha=-0.4375",
        "learning_rate=0.001234",
        "optimizer.name=adamw",
    ):
        assert part in " ".join(rows).split()
    assert header.split() == ["trial", "settings", "step", "loss", "chars/s", "state"]
    assert [row.split()[0] for row in rows if not row.startswith(" ")] == ["trial_000", "trial_001"]
    assert len(lines_of(sweep.history, width=160)) == 4


def test_the_table_is_drawn_over_the_last_one_and_stays(at: Callable[[float], None]) -> None:
    stream = Terminal()
    with SweepTable(stream) as table:
        sweep = Sweep(table)
        for trial in range(3):
            sweep.report(trial, 1, 4.0 - trial)
        sweep.report(0, 2, 1.0)
    assert [line.rstrip() for line in stream.screen()] == [*lines_of(sweep.history, width=80), ""]


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
        sweep.report(2, 1, 5.0)
        sweep.report(2, 2, 5.0, "stop")
    lines = stream.getvalue().splitlines()
    assert [line.split("  |  ")[0] for line in lines] == [
        "trial_000  running",
        "trial_000  running  step 10  loss 4.0000  12.3k characters/s",
        "trial_000  finished  step 30  loss 3.0000  12.3k characters/s",
        "trial_001  running",
        "trial_001  failed: ValueError: no",
        "trial_002  running  step 10  loss 5.0000  12.3k characters/s",
        "trial_002  stopped  step 20  loss 5.0000  12.3k characters/s",
    ]
    assert [line.split("  |  ")[1].split(" · ")[0] for line in lines] == [
        f"sweep  {ended}/4 ended" for ended in (0, 0, 1, 1, 2, 2, 3)
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_line_does_not_read_all_trials(at: Callable[[float], None]) -> None:
    with SweepTable(stream := io.StringIO()) as table:
        sweep = Sweep(table)
        sweep.history.trials = LookedUp(sweep.history.trials)
        for trial in range(4):
            sweep.begin(trial)
            sweep.report(trial, 1, 4.0 - trial, "stop")
        assert "best at step 10: 1.000 (trial_003)" in stream.getvalue().splitlines()[-1]
        lines_of(sweep.history)


def test_what_of_ray_was_lost_stands_above_the_table_or_in_a_line_and_quiet_shows_none(
    at: Callable[[float], None],
) -> None:
    terminal, log, quiet = Terminal(), io.StringIO(), io.StringIO()
    lost = {"event": "lost", "message": "the Ray node was lost\x1b[31m; starting Ray"}
    with (
        SweepTable(terminal) as table,
        SweepTable(log) as lines,
        SweepTable(quiet, verbosity="quiet") as silent,
    ):
        sweep = Sweep(table, lines, silent)
        sweep.report(0, 1, 4.0)
        for each in (table, lines, silent):
            each(lost, sweep.history)
        sweep.report(0, 2, 3.0)
    shown = "the Ray node was lost\\u001b[31m; starting Ray"
    assert [line.rstrip() for line in terminal.screen()] == [shown, *lines_of(sweep.history, width=80), ""]
    assert shown in log.getvalue().splitlines()
    assert quiet.getvalue() == ""


def test_a_sweep_that_goes_on_first_shows_the_trials_that_have_ended(at: Callable[[float], None]) -> None:
    sweep = Sweep()
    sweep.report(0, 3, 3.0)
    sweep.report(1, 1, 5.0, "stop")
    sweep.report(2, 1, 4.0)
    log, screen = SweepTable(stream := io.StringIO()), Terminal()
    log({"event": "start", "settings": 4}, sweep.history)
    with SweepTable(screen) as terminal:
        terminal({"event": "start", "settings": 4}, sweep.history)
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


def test_time_left_counts_the_trials_of_this_command() -> None:
    sweep = Sweep()
    assert "left" not in summary(sweep.history, 10.0)
    sweep.report(0, 1, 2.0, "stop")
    assert "about 3:00 left" in summary(sweep.history, 60.0)
    assert "left" not in summary(sweep.history, 60.0, earlier=1)


def test_time_left_counts_the_reports_of_running_trials() -> None:
    sweep = Sweep()
    for trial in (0, 1):
        sweep.report(trial, 2, 2.0)
    assert "about 2:00 left" in summary(sweep.history, 60.0)  # 4/3 of 4 trials are done
    sweep.report(0, 3, 2.0)
    assert "about 1:24 left" in summary(sweep.history, 60.0)
    for trial in range(4):
        sweep.report(trial, 3, 2.0, "stop")
    assert "left" not in summary(sweep.history, 60.0)  # all are done
