"""What a sweep shows: its plan, and the table and lines of a running one."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from tokenfree.core.errors import one_line
from tokenfree.train.sweep.history import Event, History, TrialState
from tokenfree.workflows.terminal.progress import Frame, clock, counted, fitted, short
from tokenfree.workflows.terminal.verbosity import Verbosity

if TYPE_CHECKING:
    from tokenfree.train.data.mixture import Data
    from tokenfree.train.sweep.planning import Placement, SweepTime, TrialCost, TrialSpeed
    from tokenfree.train.sweep.recipe import SweepRecipe
    from tokenfree.train.sweep.subjects import TaskInput
from typing import TYPE_CHECKING

from tokenfree.train.sweep.recipe import LOSS, Target
from tokenfree.train.sweep.results import is_number, short_names, shown

_MOST = 40  # settings that are listed


def describe(sweep: SweepRecipe, data: Data | TaskInput, output: str) -> Iterator[str]:
    """The lines of a dry run; for the hours some steps are trained, or a sweep in `output` is asked for its speed.

    Raises:
        UserError: the sweep cannot be run.
    """
    from tokenfree.train.sweep.planning import CostEstimator, measure, time_left
    from tokenfree.train.sweep.run import prepare

    proposer, plan = prepare(sweep, data, output)
    sweep = proposer.sweep
    placement = _placement(sweep, plan.settings)
    estimator = CostEstimator(sweep, proposer.subject)
    costs = [estimator.estimate(values) for values in plan.settings]
    runs = plan.num_settings * sweep.seeds
    seeds = f", each with {counted(sweep.seeds, 'seed')}: {counted(runs, 'trial')}" if sweep.seeds > 1 else ""
    yield f"{counted(plan.num_settings, 'setting')}{seeds}"
    for number, (values, cost) in enumerate(zip(plan.settings[:_MOST], costs, strict=False)):
        shown = ", ".join(f"{key} = {value}" for key, value in values.items())
        yield f"  {number:>3}  {shown}  ({cost.parameters:,} parameters, {cost.step_flops:.3g} FLOPs a step)"
    if len(plan.settings) > _MOST:
        yield f"  and {len(plan.settings) - _MOST} more"
    if plan.num_settings > len(plan.settings):
        more = plan.num_settings - len(plan.settings)
        yield f"  {more} more are chosen by {sweep.searcher.name} when trials have reported"
    yield f"{counted(len(plan.impossible), 'setting')} cannot be run" + (":" if plan.impossible else "")
    yield from (f"  {count} x {reason}" for reason, count in sorted(plan.skipped.items()))
    yield str(placement)
    yield from _budget(sweep, costs, runs)
    history = _begun(sweep, plan.settings, output)
    speed = measure(sweep, plan.settings[0], costs[0], proposer.subject, placement, history)
    left = time_left(sweep, costs, runs, speed, placement.concurrent, history)
    yield _hours(left, speed, placement.concurrent, begun=bool(history.trials))


def _placement(sweep: SweepRecipe, settings: tuple[dict, ...]) -> Placement:
    import torch

    from tokenfree.train.ray.cluster import cores, ray_session
    from tokenfree.train.sweep.planning import Node, cluster_nodes, find_placement

    if "RAY_ADDRESS" in os.environ:
        with ray_session():
            return find_placement(sweep, settings, cluster_nodes())
    return find_placement(sweep, settings, [Node(cores(), torch.cuda.device_count())])


def _begun(sweep: SweepRecipe, settings: tuple[dict, ...], output: str) -> History:
    """What is known of this sweep in its folder; nothing where that holds another one, or none."""
    from tokenfree.train.sweep.history import History, read_history

    none = History(sweep.seeds, sweep.reports, sweep.quality)
    if "://" in output:
        return none
    found = read_history(Path(output), seeds=sweep.seeds, reports=sweep.reports, target=sweep.quality)
    both = min(len(found.proposed), len(settings))
    return found if found.proposed[:both] == settings[:both] else none


def _hours(left: SweepTime, speed: TrialSpeed, concurrent: int, *, begun: bool) -> str:
    least, most = _time(left.least), _time(left.most)
    time = f"about {most}" if least == most else f"{least} to {most}"
    side = f"{concurrent} trials side by side" if concurrent > 1 else "one trial after another"
    return f"time{' left' if begun else ''}: {time} on this machine, {side}, validations included ({speed.source})"


def _time(seconds: float) -> str:
    if seconds < 60:
        return counted(round(seconds), "second")
    return counted(round(seconds / 60), "minute") if seconds < 3600 else f"{seconds / 3600:,.1f} hours"


def _budget(sweep: SweepRecipe, costs: list[TrialCost], runs: int) -> Iterator[str]:
    budget = sweep.budget
    most = "at most " if sweep.scheduler.name != "none" else ""
    unit = budget.unit.replace("_", " ").replace("train ", "")
    yield f"budget of a trial: {budget.amount:,.6g} {unit}{'' if unit.endswith('s') else 's'}, {sweep.reports} reports"
    if budget.seconds is not None:
        return
    share = runs / len(costs)  # settings not known yet count as the mean of those that are
    steps = share * sum(cost.steps or 0 for cost in costs)
    characters = share * sum(cost.characters or 0 for cost in costs)
    flops = share * sum(cost.flops or 0 for cost in costs)
    yield f"all trials: {most}{steps:,.0f} steps, {characters:,.3g} characters, {flops:.3g} FLOPs"


TICK = 1.0  # seconds between two drawings of the clock


class SweepTable:
    """Shows the trials of a sweep: `with SweepTable() as table: run_sweep(..., progress=table)`.

    Of a sweep that goes on, the trials that have ended are shown before anything starts.

    In a terminal a frame is written over the last one in a single piece, cut to the terminal's width and height; where
    the table is higher, trials that train stand first, then the best ones.

    Args:
        stream: standard error by default.
        verbosity: `quiet` shows nothing, `verbose` writes lines as in a log file.
    """

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._frame = Frame(self._stream)
        self._live = self._frame.live and verbosity == "normal"
        self._quiet = verbosity == "quiet"
        self._pace = SweepPace(time.monotonic())
        self._history = History(seeds=1, reports=1)  # after the last event
        self._states: dict[str, str] = {}  # of the trials, as the log says
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __call__(self, event: Event, history: History) -> None:
        """Show an event, with what is known after it."""
        with self._lock:
            self._history = history
            if event["event"] == "lost":
                self._tell(event["message"])
                return
            self._pace.hear(event, history, time.monotonic())
            if self._live:
                self._frame.draw(self._lines_that_fit())
            elif self._quiet:
                return
            elif event["event"] == "resume":
                self._log_ended(history)
            elif "trial" in event:
                self._log(event, history)

    def lines(self, width: int, height: int) -> list[str]:
        """The frame as it stands, at most `height` lines of at most `width` characters."""
        return frame(self._history, self._pace, time.monotonic(), width, height)

    def __enter__(self) -> SweepTable:
        if self._live:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        with self._lock:
            if self._live and self._history.trials:
                self._frame.finish("\n".join(self._lines_that_fit()))

    def _tell(self, message: str) -> None:
        """What the trials do not tell, above the table or as a line of its own."""
        if self._live:
            self._frame.above(one_line(message))
        elif not self._quiet:
            self._stream.write(one_line(message) + "\n")
            self._stream.flush()

    def _log(self, event: Event, history: History) -> None:
        """A line for what begins or reports, and for a trial that came into another state by something else."""
        trial = history.trials[event["trial"]]
        told = self._states.get(trial.name)
        if event["event"] in ("begin", "report") or (trial.ended and trial.state != told):
            self._write(trial, history)

    def _log_ended(self, history: History) -> None:
        """A line for each trial that ended in earlier commands."""
        for trial in history.trials.values():
            if trial.ended:
                self._write(trial, history)

    def _write(self, trial: TrialState, history: History) -> None:
        self._states[trial.name] = trial.state
        self._stream.write(one_line(news(trial, history, self._pace, time.monotonic())) + "\n")
        self._stream.flush()

    def _lines_that_fit(self) -> list[str]:
        columns, rows = self._frame.size
        return self.lines(columns - 1, rows - 1)

    def _tick(self) -> None:
        while not self._done.wait(TICK):
            with self._lock:
                self._frame.draw(self._lines_that_fit())


class SweepPace:
    """Hears the events of a sweep, with the second of each; its clock is any that never goes back.

    Args:
        now: when the command began.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        self._origin: float | None = None  # when the first trial of this command began to train
        self._before = 0.0  # trials, and parts of trials, that earlier, killed commands had done
        self._heard: dict[str, float] = {}  # by trial, of its last event

    def hear(self, event: Event, history: History, now: float) -> None:
        """Take in an event, with what is known after it."""
        if event["event"] == "start" and self._origin is None:
            self._before = _done(history)
        if "trial" in event:
            self._heard[event["trial"]] = now
        if self._origin is None and event["event"] in ("report", "failure"):  # the start of workers is no part of it
            used = history.trials[event["trial"]].last.get("train_seconds", 0.0)
            self._origin = max(self.began, now - used)

    def trial_left(self, trial: TrialState, now: float) -> float | None:
        """Seconds until the last report of a trial that trains, if it is not stopped before; None where unknown."""
        used = trial.last.get("train_seconds")
        if trial.state != "running" or not is_number(used):
            return None
        left = used / trial.report_number * (trial.last_report - trial.report_number)
        return max(0.0, left - (now - self._heard.get(trial.name, now)))

    def left(self, history: History, now: float) -> float | None:
        """Seconds until the last trial ends, at the pace of this command; None where unknown or nothing is left."""
        done = _done(history)
        if self._origin is None or done <= self._before or done >= history.total:
            return None
        return (now - self._origin) / (done - self._before) * (history.total - done)


def _done(history: History) -> float:
    """How many trials have ended, and the parts done of those that have not."""
    return sum(1.0 if trial.ended else trial.report_number / trial.last_report for trial in history.trials.values())


LOSS_COLUMN = "loss"


_HEADER = ("trial", "settings", "step", LOSS_COLUMN, "chars/s", "state", "left")


_SEPARATOR = " · "


_FLUSH_RIGHT = frozenset({2, 3, 4, 6})


_SETTINGS, _LEAST_SETTINGS = 1, 8  # the column that gives way where there is no room, and what is left of it


def frame(history: History, pace: SweepPace, now: float, width: int, height: int) -> list[str]:
    """The table, at most `height` lines of at most `width` characters: trials that train first, then the best ones."""
    trials = sorted((trial for trial in history.trials.values() if trial.state != "waiting"), key=_order)
    if not trials:
        return [_cut(f"sweep  begins · {clock(now - pace.began)}", width)]
    hidden = len(trials) - max(height - 2, 1)
    if hidden > 0:
        trials = trials[: max(height - 3, 0)]
    header = tuple(quality_name(history.target) if name == LOSS_COLUMN else name for name in _HEADER)
    rows = [header, *(_row(trial, pace, now) for trial in trials)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    room = width - sum(widths) + widths[_SETTINGS] - 2 * (len(_HEADER) - 1)
    widths[_SETTINGS] = max(_LEAST_SETTINGS, min(widths[_SETTINGS], room))
    lines = [fitted(_summary(history, pace, now), _SEPARATOR, width), *(_joined(row, widths) for row in rows)]
    if hidden > 0:
        lines.append(f"and {hidden + 1} more")
    return [_cut(line, width) for line in lines[:height]]


def _summary(history: History, pace: SweepPace, now: float) -> list[str]:
    """Trials ended, the best loss or score of those that got furthest, the clock and the time left."""
    trials = history.trials.values()
    parts = [f"sweep  {sum(trial.ended for trial in trials)}/{history.total or '?'} ended"]
    furthest = max((trial.report_number for trial in trials), default=0)
    target = history.target
    found = [
        (target.cost(value), trial.name, trial.last.get("step", 0), value)
        for trial in trials
        if trial.report_number == furthest and is_number(value := trial.last.get(target.metric))
    ]
    if found:
        _, name, step, value = min(found)
        parts.append(f"best at step {step:,}: {value:.3f} ({name})")
    parts.append(clock(now - pace.began))
    left = pace.left(history, now)
    return [*parts, f"about {clock(left)} left"] if left is not None else parts


def news(trial: TrialState, history: History, pace: SweepPace, now: float) -> str:
    """The line of a log file about a trial of which there is something new."""
    name, _, step, loss, rate, state, _ = _row(trial, pace, now)
    parts = [name, state if state != "failed" else f"failed: {trial.error or 'no message'}"]
    quality = quality_name(history.target)
    parts += [f"step {step}"] * bool(step) + [f"{quality} {loss}"] * bool(loss) + [f"{rate} characters/s"] * bool(rate)
    return "  ".join(parts) + "  |  " + _SEPARATOR.join(_summary(history, pace, now))


def quality_name(target: Target) -> str:
    """What stands over the numbers by which trials are judged: `loss`, or `score` or `error` of a task."""
    return LOSS_COLUMN if target == LOSS else target.metric.removeprefix("dev_")


def _order(trial: TrialState) -> tuple[int, int, float, str]:
    """Those that train by their names, then those that got furthest, the best first, then those that failed."""
    if trial.state == "running":
        return 0, 0, 0.0, trial.name
    found = trial.last.get(trial.target.metric)
    cost = trial.target.cost(found) if is_number(found) else 0.0
    return 1 + (trial.state == "failed"), -trial.report_number, cost, trial.name


def _row(trial: TrialState, pace: SweepPace, now: float) -> tuple[str, ...]:
    keys, last = sorted(trial.values), trial.last
    settings = (f"{key}={shown(trial.values[full])}" for key, full in zip(short_names(keys), keys, strict=True))
    loss, rate, left = last.get(trial.target.metric), last.get("characters_per_second"), pace.trial_left(trial, now)
    return (
        trial.name,
        " ".join(settings),
        f"{last['step']:,}" if "step" in last else "",
        f"{loss:.4f}" if is_number(loss) else "",
        short(rate) if is_number(rate) else "",
        trial.state,
        "" if left is None else clock(left),
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _joined(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if column in _FLUSH_RIGHT else _cut(cell, width).ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
