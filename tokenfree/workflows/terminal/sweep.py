"""Output of sweeps: the plan of a dry run, and the table and log lines of a running sweep."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from tokenfree.core.errors import one_line
from tokenfree.train.sweep.history import Event, History, TrialState
from tokenfree.train.sweep.recipe import LOSS, Scheduler, Target, expected_reports
from tokenfree.train.sweep.results import is_number, short_names, shown
from tokenfree.workflows.terminal.progress import SEPARATOR, Display, clock, counted, short
from tokenfree.workflows.terminal.verbosity import Verbosity

if TYPE_CHECKING:
    from tokenfree.train.data.mixture import Data
    from tokenfree.train.sweep.planning import Placement, TrialCost
    from tokenfree.train.sweep.recipe import SweepRecipe
    from tokenfree.train.sweep.subjects import TaskInput

_MOST = 40  # number of settings that are listed


def describe(sweep: SweepRecipe, data: Data | TaskInput, output: str) -> Iterator[str]:
    """Yield the lines of a dry run. Nothing is trained.

    Raises:
        UserError: The sweep cannot be run.
    """
    from tokenfree.train.sweep.planning import trial_costs
    from tokenfree.train.sweep.run import prepare

    proposer, plan = prepare(sweep, data, output)
    sweep = proposer.sweep
    placement = _placement(sweep, plan.settings)
    costs = trial_costs(sweep, proposer.subject, plan.settings)
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


def _placement(sweep: SweepRecipe, settings: tuple[dict, ...]) -> Placement:
    import torch

    from tokenfree.train.ray.cluster import cores, ray_session
    from tokenfree.train.sweep.planning import Node, cluster_nodes, find_placement

    if "RAY_ADDRESS" in os.environ:
        with ray_session():
            return find_placement(sweep, settings, cluster_nodes())
    return find_placement(sweep, settings, [Node(cores(), torch.cuda.device_count())])


def _budget(sweep: SweepRecipe, costs: list[TrialCost], runs: int) -> Iterator[str]:
    budget = sweep.budget
    most = "at most " if sweep.scheduler.name != "none" else ""
    unit = {"step": "steps", "train_seconds": "seconds"}.get(budget.unit, budget.unit)
    yield f"budget of a trial: {budget.amount:,.6g} {unit}, {counted(sweep.reports, 'report')}"
    if budget.seconds is not None:
        return
    share = runs / len(costs)  # settings that are not chosen yet count as the mean of the others
    steps = share * sum(cost.steps or 0 for cost in costs)
    characters = share * sum((cost.steps or 0) * cost.step_characters for cost in costs)
    flops = share * sum((cost.steps or 0) * cost.step_flops for cost in costs)
    yield f"all trials: {most}{steps:,.0f} steps, {characters:,.3g} characters, {flops:.3g} FLOPs"


class SweepTable:
    """A table of the trials of a sweep: `with SweepTable() as table: run_sweep(..., progress=table)`.

    If the sweep resumes, its ended trials are shown before anything starts.

    In a terminal, each frame replaces the last one and is cut to the width and height of the terminal. If not all
    trials fit, running trials come first, then the best ones.

    Args:
        stream: Stream to write to; default: standard error.
        verbosity: `quiet` shows nothing; `verbose` writes lines as in a log file.
        scheduler: Scheduler of the sweep, for the time left; None if it stops no trial.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        verbosity: Verbosity = "normal",
        scheduler: Scheduler | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._display = Display(self._stream, self._draw, verbosity)
        self._quiet = verbosity == "quiet"
        self.pace = SweepPace(time.monotonic(), scheduler)
        self._history = History(seeds=1, reports=1)  # history after the last event
        self._states: dict[str, str] = {}  # last logged state of each trial

    def __call__(self, event: Event, history: History) -> None:
        """Show an event. `history` includes it."""
        self._history = history
        if event["event"] == "lost":
            self._tell(event["message"])
            return
        self.pace.hear(event, history, time.monotonic())
        if self._display.live:
            self._display.show()
        elif self._quiet:
            return
        elif event["event"] == "resume":
            for trial in history.trials.values():
                if trial.ended:
                    self._write(trial, history)
        elif "trial" in event:
            self._log(event, history)

    def lines(self, width: int, height: int) -> list[str]:
        """Return the current frame, at most `height` lines of at most `width` characters."""
        return frame(self._history, self.pace, time.monotonic(), width, height)

    def __enter__(self) -> SweepTable:
        self._display.show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._display.stop(keep=bool(self._history.trials))

    def _tell(self, message: str) -> None:
        """Show a message that belongs to no trial, above the table or as a separate line."""
        if self._display.live:
            self._display.message(message)
        elif not self._quiet:
            self._stream.write(one_line(message) + "\n")
            self._stream.flush()

    def _log(self, event: Event, history: History) -> None:
        """Write a line if a trial begins or reports, or if its state changes otherwise."""
        trial = history.trials[event["trial"]]
        told = self._states.get(trial.name)
        if event["event"] in ("begin", "report") or (trial.ended and trial.state != told):
            self._write(trial, history)

    def _write(self, trial: TrialState, history: History) -> None:
        self._states[trial.name] = trial.state
        self._stream.write(one_line(news(trial, history, self.pace, time.monotonic())) + "\n")
        self._stream.flush()

    def _draw(self) -> Text:
        columns, rows = self._display.console.size
        lines = map(one_line, self.lines(columns - 1, rows - 1))
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


class SweepPace:
    """Estimates the time left from the seconds between reports. Times may come from any monotonic clock.

    Args:
        now: Time when the command began.
        scheduler: Scheduler of the sweep; None if it stops no trial.
    """

    def __init__(self, now: float, scheduler: Scheduler | None = None) -> None:
        self.began = now
        self._scheduler = scheduler
        self._heard: dict[str, float] = {}  # time of the last event of each trial
        self._starting: set[str] = set()  # trials whose first report follows a start of workers
        # Seconds between reports of this command, number of reports, and largest number of running trials.
        self._seconds, self._reports, self._slots = 0.0, 0, 1

    def hear(self, event: Event, history: History, now: float) -> None:
        """Take an event into account. `history` includes it."""
        if "trial" not in event:
            return
        trial = history.trials[event["trial"]]
        if event["event"] == "begin" and not self._reports:
            self._starting.add(trial.name)
        if event["event"] == "report":
            before, last = ({}, *trial.reports)[-2:]
            seconds = now - self._heard.get(trial.name, self.began)
            if trial.name in self._starting:  # the start of workers does not count
                seconds = min(seconds, last.get("train_seconds", 0.0) - before.get("train_seconds", 0.0))
                self._starting.remove(trial.name)
            self._seconds += seconds
            self._reports += last["report"] - before.get("report", 0)
        self._slots = max(self._slots, sum(each.running for each in history.trials.values()))
        self._heard[trial.name] = now

    def trial_left(self, trial: TrialState, now: float) -> float | None:
        """Return the seconds until the last report of a running trial, assuming that it is not stopped early."""
        used = trial.last.get("train_seconds")
        if trial.state != "running" or not is_number(used):
            return None
        left = used / trial.report_number * (trial.last_report - trial.report_number)
        return max(0.0, left - (now - self._heard.get(trial.name, now)))

    def left(self, history: History, now: float) -> float | None:
        """Return the seconds until the last trial ends, from the mean time of a report and what the scheduler stops."""
        if not self._reports or history.all_ended:
            return None
        each = self._seconds / self._reports
        left = [self._expected(history, 0) * each] * (history.total - len(history.trials))
        for trial in history.trials.values():
            if not trial.ended:
                since = now - self._heard.get(trial.name, now) if trial.running else 0.0
                left.append(max(0.0, self._expected(history, trial.report_number) * each - since))
        return max(sum(left) / self._slots, *left)

    def _expected(self, history: History, done: int) -> float:
        return expected_reports(self._scheduler, history.reports, done)


LOSS_COLUMN = "loss"
_HEADER = ("trial", "settings", "step", LOSS_COLUMN, "chars/s", "state", "left")
_FLUSH_RIGHT = frozenset({2, 3, 4, 6})
_SETTINGS, _LEAST_SETTINGS = 1, 12  # the column that is wrapped, and its minimum width
_GIVE_WAY = (6, 4, 2)  # columns to omit, in this order, before settings are wrapped
_STATE = 5  # column to omit if wrapped settings still do not fit


def frame(history: History, pace: SweepPace, now: float, width: int, height: int) -> list[str]:
    """Return the table, at most `height` lines of at most `width` characters.

    Running trials come first, then the best ones. Settings are never cut. If the table is too wide, other columns are
    omitted, then settings are wrapped.
    """
    trials = sorted((trial for trial in history.trials.values() if trial.state != "waiting"), key=_order)
    if not trials:
        return [_cut(f"sweep  begins · {clock(now - pace.began)}", width)]
    header = tuple(quality_name(history.target) if name == LOSS_COLUMN else name for name in _HEADER)
    rows = [header, *(_row(trial, pace, now) for trial in trials[:height])]
    widths = {number: max(map(len, cells)) for number, cells in enumerate(zip(*rows, strict=True))}
    for number in _GIVE_WAY:
        if _width(widths) > width:
            del widths[number]
    if _width({**widths, _SETTINGS: _LEAST_SETTINGS}) > width:
        del widths[_STATE]
    widths[_SETTINGS] -= max(0, min(_width(widths) - width, widths[_SETTINGS] - _LEAST_SETTINGS))
    lines = [SEPARATOR.join(_summary(history, pace, now)), *_lines(header, widths)]
    for number, row in enumerate(rows[1:]):
        found, last = _lines(row, widths), number == len(trials) - 1
        if len(lines) + len(found) + (not last) > height:
            lines.append(f"and {len(trials) - number} more")
            break
        lines += found
    return [_cut(line, width) for line in lines[:height]]


def _summary(history: History, pace: SweepPace, now: float) -> list[str]:
    """Return the number of ended trials, the best result among those that got furthest, the clock and the time left."""
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
    """Return the log line about a trial whose state or report is new."""
    name, _, step, loss, rate, state, _ = _row(trial, pace, now)
    parts = [name, state if state != "failed" else f"failed: {trial.error or 'no message'}"]
    quality = quality_name(history.target)
    parts += [f"step {step}"] * bool(step) + [f"{quality} {loss}"] * bool(loss) + [f"{rate} characters/s"] * bool(rate)
    return "  ".join(parts) + "  |  " + SEPARATOR.join(_summary(history, pace, now))


def quality_name(target: Target) -> str:
    """Return the heading of the numbers by which trials are judged: `loss`, or `score` or `error` of a task."""
    return LOSS_COLUMN if target == LOSS else target.metric.removeprefix("dev_")


def _order(trial: TrialState) -> tuple[int, int, float, str]:
    """Return the sort key: running trials by name, then others by progress and result, failed ones last."""
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


def _width(widths: dict[int, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _lines(row: Sequence[str], widths: dict[int, int]) -> list[str]:
    """Return the lines of a table row: one, or more if its settings are wrapped."""
    first, *more = textwrap.wrap(row[_SETTINGS], widths[_SETTINGS], break_on_hyphens=False) or [""]
    cells = {**dict(enumerate(row)), _SETTINGS: first}
    line = "  ".join(
        cells[number].rjust(width) if number in _FLUSH_RIGHT else cells[number].ljust(width)
        for number, width in widths.items()
    )
    return [line.rstrip(), *(" " * (widths[0] + 2) + rest for rest in more)]
