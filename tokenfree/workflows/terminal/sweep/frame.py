"""What stands in the table of a sweep: plain text, made from the sweep's history and its pace."""

from tokenfree.train.sweep.control.history import History, TrialState
from tokenfree.train.sweep.results.trial_result import is_number, short_names, shown
from tokenfree.train.sweep.space.targets import LOSS, Target
from tokenfree.workflows.terminal.live_line import clock, fitted, short
from tokenfree.workflows.terminal.sweep.pace import SweepPace

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


def _joined(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if column in _FLUSH_RIGHT else _cut(cell, width).ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
