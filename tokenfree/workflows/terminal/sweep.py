"""Output of sweeps: the plan of a dry run, and the table and log lines of a running sweep."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self, TextIO

import torch
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from tokenfree.core.ray_access import named_cluster
from tokenfree.train.data.mixture import Data
from tokenfree.train.sweep.history import Event, History, TrialState
from tokenfree.train.sweep.recipe import KEPT, LOSS, Metric, SweepRecipe, Values
from tokenfree.train.sweep.results import format_value, is_number, short_names
from tokenfree.train.sweep.run import prepare
from tokenfree.train.sweep.subjects import TaskInput
from tokenfree.workflows.terminal.output import Verbosity, one_line
from tokenfree.workflows.terminal.progress import SEPARATOR, Display
from tokenfree.workflows.terminal.results import clock, counted, short

if TYPE_CHECKING:
    from tokenfree.train.sweep.tune import Placement

_MAX_SETTINGS = 40  # number of settings that are listed


def describe(sweep: SweepRecipe, data: Data | TaskInput, output: str) -> Iterator[str]:
    """Yield the lines of a dry run. Nothing is trained. Raises UserError if the sweep cannot be run."""
    proposer, planned = prepare(sweep, data, output)
    sweep, proposed = proposer.sweep, planned.proposed
    placement = _placement(sweep, proposed)
    runs = counted(planned.num_settings * sweep.seeds, "trial")
    yield f"{counted(planned.num_settings, 'setting')}, {counted(sweep.seeds, 'seed')} each: {runs}"
    for number, values in enumerate(proposed[:_MAX_SETTINGS]):
        yield f"  {number:>3}  " + ", ".join(f"{key} = {value}" for key, value in values.items())
    if len(proposed) > _MAX_SETTINGS:
        yield f"  and {len(proposed) - _MAX_SETTINGS} more"
    if planned.num_settings > len(proposed):
        more = planned.num_settings - len(proposed)
        yield f"  {more} more are chosen by {sweep.searcher.name} when trials have reported"
    yield f"{counted(len(planned.skipped), 'setting')} cannot be run" + (":" if planned.skipped else "")
    yield from (f"  {count} x {reason}" for reason, count in sorted(planned.reasons().items()))
    needs = ", ".join(f"{amount:g} {name}" for name, amount in placement.needs.items())
    yield f"{counted(placement.concurrent, 'trial')} side by side, each with {needs}"
    budget = sweep.budget
    kept = KEPT.get(sweep.scheduler.name, "nothing: its state is new")
    yield f"scheduler: {sweep.scheduler.name}, which after a kill keeps {kept}"
    yield f"budget of a trial: {budget.amount:,g} {budget.key}, {counted(sweep.reports, 'report')}"


def _placement(sweep: SweepRecipe, settings: Sequence[Values]) -> "Placement":
    # Here because importing Ray takes seconds, and only a dry run needs it in this process.
    from tokenfree.train.ray.cluster import cores, ray_session
    from tokenfree.train.sweep.tune import cluster_nodes, find_placement

    if named_cluster() is not None:
        with ray_session():
            return find_placement(sweep, settings, cluster_nodes())
    return find_placement(sweep, settings, [{"CPU": cores(), "GPU": torch.cuda.device_count()}])


class SweepTable:
    """A table of the trials of a sweep: `with SweepTable() as table: run_sweep(..., progress=table)`.

    In a terminal, running trials come first, then the best ones; the end is cut if not all fit.
    """

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._display = Display(self._stream, self._draw, verbosity)
        self._quiet = verbosity == "quiet"
        self._began = time.monotonic()
        self._history = History(seeds=1, reports=1)
        # Last logged state of each trial.
        self._states: dict[str, str] = {}
        # Number of trials that had been done before this command, with parts of trials.
        self._earlier = 0.0

    def __call__(self, event: Event, history: History) -> None:
        """Show an event. `history` includes it."""
        self._history = history
        if event["event"] == "start":
            self._earlier = _done(history)
        if self._display.live:
            self._display.show()
            if event["event"] == "lost":
                self._display.message(event["message"])
        elif not self._quiet:
            self._log(event)

    def __enter__(self) -> Self:
        self._display.show()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop(keep=bool(self._history.trials))

    def _log(self, event: Event) -> None:
        trials = self._history.trials
        if event["event"] == "lost":
            self._write(event["message"])
        # Also when a sweep resumes.
        elif event["event"] == "start":
            for trial in trials.values():
                if trial.ended and trial.name not in self._states:
                    self._log_trial(trial)
        elif "trial" in event:
            trial = trials[event["trial"]]
            if event["event"] in ("begin", "report") or (
                trial.ended and trial.state != self._states.get(trial.name)
            ):
                self._log_trial(trial)

    def _log_trial(self, trial: TrialState) -> None:
        self._states[trial.name] = trial.state
        self._write(f"{log_line(trial)}  |  {self._summary()}")

    def _write(self, text: str) -> None:
        self._stream.write(one_line(text) + "\n")
        self._stream.flush()

    def _draw(self) -> RenderableType:
        return frame(self._history, self._summary(), self._display.console.size.height)

    def _summary(self) -> str:
        return summary(self._history, time.monotonic() - self._began, self._earlier)


def frame(history: History, summary: str, max_trials: int) -> RenderableType:
    """Return the table of at most `max_trials` trials: running ones first, then the best ones.

    Settings are never cut.
    """
    # Copied at once, because drawing is in another thread.
    unfinished, ended = list(history.unfinished.values()), history.ended[:max_trials]
    running = [trial for trial in unfinished if trial.state == "running"]
    trials = [*sorted(running, key=lambda trial: trial.name), *ended]
    line = Text(one_line(summary), no_wrap=True, overflow="ellipsis")
    if not trials:
        return line
    numbers = ("step", quality_name(history.target), "chars/s")
    columns = (
        Column("trial", no_wrap=True),
        Column("settings", overflow="fold", min_width=12),
        *(Column(name, justify="right", no_wrap=True) for name in numbers),
        Column("state", no_wrap=True),
    )
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for trial in trials[:max_trials]:
        table.add_row(*map(one_line, _row(trial)))
    return Group(line, table)


def summary(history: History, seconds: float, earlier: float = 0) -> str:
    """Return the number of ended trials, the best result among those that got furthest, and the time used and left.

    The time left assumes that the other trials take as long as what was done since `earlier` of them were.
    """
    parts = [f"sweep  {len(history.ended)}/{history.total or '?'} ended"]
    best = min((*history.unfinished.values(), *history.ended[:1]), key=TrialState.order, default=None)
    value = None if best is None else best.last.get(history.target.metric)
    if best is not None and is_number(value):
        parts.append(f"best at step {best.last.get('step', 0):,}: {value:.3f} ({best.name})")
    parts.append(clock(seconds))
    done = _done(history)
    if earlier < done < history.total:
        parts.append(f"about {clock(seconds / (done - earlier) * (history.total - done))} left")
    return SEPARATOR.join(parts)


def _done(history: History) -> float:
    """Return the number of trials that have ended, plus the parts of the running ones that are trained."""
    unfinished = list(history.unfinished.values())
    return len(history.ended) + sum(trial.report_number / trial.last_report for trial in unfinished)


def log_line(trial: TrialState) -> str:
    """Return the log line about a trial whose state or report is new."""
    name, _, step, loss, rate, state = _row(trial)
    parts = [name, state if state != "failed" else f"failed: {trial.error or 'no message'}"]
    quality = quality_name(trial.target)
    parts += (
        [f"step {step}"] * bool(step)
        + [f"{quality} {loss}"] * bool(loss)
        + [f"{rate} characters/s"] * bool(rate)
    )
    return "  ".join(parts)


def quality_name(target: Metric) -> str:
    """Return the heading of the numbers by which trials are judged: `loss`, or `score` or `error` of a task."""
    return "loss" if target == LOSS else target.metric.removeprefix("dev_")


def _row(trial: TrialState) -> tuple[str, ...]:
    keys, last = sorted(trial.values), trial.last
    settings = (
        f"{key}={format_value(trial.values[full])}" for key, full in zip(short_names(keys), keys, strict=True)
    )
    loss, rate = last.get(trial.target.metric), last.get("characters_per_second")
    return (
        trial.name,
        " ".join(settings),
        f"{last['step']:,}" if "step" in last else "",
        f"{loss:.4f}" if is_number(loss) else "",
        short(rate) if is_number(rate) else "",
        trial.state,
    )
