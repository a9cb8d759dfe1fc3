"""Section of a sweep, ended or not: the best setting, effects of hyperparameters, speed, and all trials."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from tokenfree.train.intervals import MeanInterval
from tokenfree.train.runs.formats import main_baselines
from tokenfree.train.sweep import results
from tokenfree.train.sweep.history import is_number
from tokenfree.train.sweep.recipe import LOSS, Metric, objectives, quality
from tokenfree.train.sweep.recipe import UNITS as BUDGET_UNITS
from tokenfree.train.sweep.results import METRICS, Setting, format_value
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.figures import Dot, inline
from tokenfree.workflows.report.load import SweepRecord, attempt_table, state
from tokenfree.workflows.report.parts import (
    Block,
    Card,
    Section,
    Table,
    baseline_note,
    count,
    cut,
    decimal,
    duration,
    plus_minus,
    settings_table,
)
from tokenfree.workflows.terminal.results import counted

UNITS = {"step": "step", "characters": "characters", "flops": "FLOPs", "train_seconds": "training seconds"}
LOSS_NAME = "held-out loss (nats)"
MAX_PLOTTED_TRIALS = 400  # trials in one figure
# Rows of a settings table that is not folded.
MAX_ROWS = 20
MAX_NAMING_KEYS = 4  # hyperparameters whose values name a setting in figures


class SweepView:
    """A sweep with its settings ranked at the same amount of the budget's unit."""

    def __init__(self, sweep: SweepRecord) -> None:
        self.sweep, self.trials = sweep, list(sweep.trials)
        keys = results.hyperparameters(self.trials)
        # By dotted key.
        self.names = dict(zip(keys, results.short_names(keys), strict=True))
        budget = sweep.recipe.get("budget") or {}
        # The field of the reports that the budget counts.
        self.unit = next(
            (field for key, field in BUDGET_UNITS.items() if budget.get(key) is not None), "step"
        )
        names = sweep.recipe.get("objectives") or [LOSS.metric]
        # `target` ranks the settings; `quality` judges a trial: the held-out loss, or the score of a task.
        self.target, self.quality = objectives(names)[0], quality(names)
        # None before the first report.
        self.amount = results.full_amount(self.trials, self.unit)
        self.ranked = results.rank(self.trials, target=self.target, unit=self.unit, amount=self.amount)
        # Loss is compared with speed at an amount that three settings reached.
        self.front_amount = results.front_amount(self.trials, self.unit) or 0.0
        self.front_ranked = results.rank(
            self.trials, target=self.target, unit=self.unit, amount=self.front_amount
        )
        front = results.front(self.front_ranked, LOSS)
        self.front = [item.setting.name for item in front]

    def at(self, amount: float) -> str:
        """Return an amount of the budget in words, such as `step 90`."""
        return f"{UNITS[self.unit]} {count(amount)}"

    def short_name(self, setting: Setting) -> str:
        """Return the values that differ, as `4 · 0.5 · full`; the setting's number if none or too many do."""
        differing = [
            key
            for key in self.names
            if len({format_value(trial.values.get(key)) for trial in self.trials}) > 1
        ]
        values = [setting.values.get(key) for key in differing] if len(differing) <= MAX_NAMING_KEYS else []
        parts = [
            f"{value:.3g}" if isinstance(value, float) else cut(format_value(value) or "–", 14)
            for value in values
        ]
        return " · ".join(parts) or str(setting.index)

    def described(self, values: Mapping[str, Any]) -> str:
        """Return values as `rate = 4, alpha = 0.5`."""
        text = ", ".join(
            f"{self.names[key]} = {format_value(value)}" for key, value in sorted(values.items())
        )
        return text or "the base recipe"


def sweep_section(view: SweepView) -> Section:
    parts = (_effects, _cost, _parallel, _settings, _curves, _trials)
    blocks = [_best(view), *(block for part in parts for block in part(view))]
    return Section(
        f"Sweep · {view.sweep.path.name}", state(view.sweep, view.sweep.ended), list(_cards(view)), blocks
    )


def _name(target: Metric) -> str:
    return LOSS_NAME if target == LOSS else target.metric.replace("_", " ")


def _interval(interval: MeanInterval | None, digits: int = 4) -> str:
    return "–" if interval is None else plus_minus(interval.mean, interval.half, digits)


def _cards(view: SweepView) -> Iterator[Card]:
    if view.ranked and view.amount is not None:
        setting = view.ranked[0].setting
        interval = setting.interval(view.quality.metric, view.amount, view.unit)
        seeds = (
            "one seed"
            if interval is None or interval.count == 1
            else f"mean of {interval.count} seeds, 95% interval"
        )
        note = f"{setting.name}: {view.described(setting.values)}"
        if results.is_by_chance(view.trials, view.ranked):
            note += f" ({results.ONE_SEED})"
        yield Card("Best setting", view.short_name(setting), note)
        yield Card(
            f"Best {_name(view.quality)}", _interval(interval, 3), f"At {view.at(view.amount)}, {seeds}."
        )
    for name, value in view.sweep.scores.get("test", {}).items():
        if "/" not in name:
            note = "Of the best setting: mean over seeds, each at its best step on the development set."
            if name == next(iter(view.sweep.scores["test"])):
                note += baseline_note(main_baselines(view.sweep.scores, "test"))
            yield Card(f"{name.replace('_', ' ')}, test set", decimal(value), note)
    states = [trial.state for trial in view.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in results.STATES if state in states)
    skipped = sum(view.sweep.skipped.values())
    counts += f"; {counted(skipped, 'setting')} that cannot work" if skipped else ""
    yield Card("Trials", str(len(states)), f"{counts}." if counts else "None yet.")
    seconds = sum(trial.last.get("train_seconds", 0.0) for trial in view.trials)
    if seconds:
        yield Card("Training time", duration(seconds), "Of all trials together.")


def _best(view: SweepView) -> Block:
    """Return the command that trains the best setting, or why there is none."""
    if view.sweep.ended and view.ranked and view.quality == LOSS:
        path = shlex.quote(str(view.sweep.path / "best.yaml"))
        return Block(command=f"tokenfree pretrain {path} --data DIR --output RUN")
    if view.ranked:
        return Block()
    reason = "no trial has reported yet" if view.amount is None else "no loss is a number"
    if view.trials and all(trial.state == "failed" for trial in view.trials):
        reason = "every trial failed"
    return Block(text=f"There is no best setting: {reason}.")


def _effects(view: SweepView) -> Iterator[Block]:
    """Yield a figure per hyperparameter at the amount that all trials reached."""
    common = results.common_amount(view.trials, view.unit)
    if common is None:
        return
    trial_losses = [(trial, trial.value_at(LOSS.metric, common, view.unit)) for trial in view.trials]
    compared = [(trial, loss) for trial, loss in trial_losses if loss is not None and trial.state != "failed"]
    losses = [loss for _, loss in compared]
    drawn, rows, has_intervals = [], [], False
    for key, name in view.names.items():
        levels = results.levels([trial.values.get(key) for trial, _ in compared], losses)
        if len(levels) > 1:
            rows += [
                [name, level.label, str(level.interval.count), _interval(level.interval)] for level in levels
            ]
            has_intervals |= any(level.interval.count >= figures.MIN_TRIALS for level in levels)
            drawn.append(inline(figures.effect(name, losses, levels, LOSS_NAME), f"Held-out loss by {name}"))
    if rows:
        table = Table(
            "Mean loss by value", ["hyperparameter", "value", "trials", LOSS_NAME], rows, folded=True
        )
        bars = "means with 95% intervals over trials, if a value has three" if has_intervals else "means"
        text = f"{counted(len(compared), 'trial')} at {view.at(common)}. Bars: {bars}."
        yield Block("What each hyperparameter does", text, figures=drawn, tables=[table])


def _cost(view: SweepView) -> Iterator[Block]:
    """Yield loss against speed; none for models with equal FLOPs, whose speeds differ by chance."""
    models = {item.setting.flops for item in view.front_ranked}
    dots = []
    for setting in (item.setting for item in view.front_ranked):
        interval, speed = setting.interval(LOSS.metric, view.front_amount, view.unit), setting.speed
        if interval is not None and speed is not None:
            dots.append(Dot(view.short_name(setting), speed, interval.mean, setting.name in view.front))
    if len({dot.speed for dot in dots}) > 1 and (len(models) > 1 or None in models):
        figure = figures.speed_against_loss(dots, y=LOSS_NAME)
        text = f"{counted(len(dots), 'setting')} at {view.at(view.front_amount)}."
        yield Block(
            "Loss against speed", text, figures=[inline(figure, "Loss against speed of every setting")]
        )


def _parallel(view: SweepView) -> Iterator[Block]:
    names = {
        key: name
        for key, name in view.names.items()
        if len({format_value(item.setting.values.get(key)) for item in view.ranked}) > 1
    }
    lines = [(item.setting.values, item.interval.mean) for item in view.ranked[:MAX_PLOTTED_TRIALS]]
    if len(names) > 1 and len(lines) > 2 and lines[0][1] != lines[-1][1]:
        figure = figures.parallel(lines, names, y=_name(view.target))
        yield Block(figures=[inline(figure, f"All settings and their {_name(view.target)}")])


def _settings(view: SweepView) -> Iterator[Block]:
    if not view.ranked or view.amount is None:
        return
    rows = []
    for number, item in enumerate(view.ranked, 1):
        setting = item.setting
        rows.append([
            str(number), setting.name, *(format_value(setting.values.get(key)) or "–" for key in view.names),
            _interval(item.interval), str(item.interval.count), "–" if setting.speed is None else count(setting.speed),
            "yes" if setting.name in view.front else "",
        ])  # fmt: skip
    header = ["rank", "setting", *view.names.values(), _name(view.target), "seeds", "characters/s", "front"]
    caption = f"Settings at {view.at(view.amount)}, best first"
    yield Block("Settings compared", tables=[Table(caption, header, rows, folded=len(rows) > MAX_ROWS)])


def _curves(view: SweepView) -> Iterator[Block]:
    winner = {trial.name for trial in view.ranked[0].setting.trials} if view.ranked else set()
    lines = []
    for trial in view.trials[:MAX_PLOTTED_TRIALS]:
        points = [(report.get("step"), report.get(LOSS.metric)) for report in trial.reports]
        points = [(x, y) for x, y in points if is_number(x) and is_number(y)]
        if points:
            xs, ys = zip(*points, strict=True)
            lines.append(("best" if trial.name in winner else trial.state, xs, ys))
    if lines:
        figure = figures.trials(lines, x="step", y=LOSS_NAME)
        yield Block(figures=[inline(figure, "Held-out loss of every trial by step")])


def _trials(view: SweepView) -> Iterator[Block]:
    lost = [trial for trial in view.trials if trial.state == "failed"]
    failed = [[trial.name, trial.error or "no message", view.described(trial.values)] for trial in lost]
    skipped = [[reason, str(number)] for reason, number in sorted(view.sweep.skipped.items())]
    rows = [
        [
            trial.name,
            format_value(trial.seed),
            trial.state,
            *(format_value(trial.values.get(key)) or "–" for key in view.names),
        ]
        + [f"{trial.last[name]:,.5g}" if is_number(trial.last.get(name)) else "–" for name in METRICS]
        for trial in view.trials
    ]
    header = ["trial", "seed", "state", *view.names.values(), *(name.replace("_", " ") for name in METRICS)]
    recipe = {key: value for key, value in view.sweep.recipe.items() if key != "variants"}
    yield Block(
        tables=[
            Table("Failed trials, which take no part in comparisons", ["trial", "error", "values"], failed),
            Table(
                "Settings that were not run, because the recipe refuses them", ["why", "settings"], skipped
            ),
            Table("All trials with their last report", header, rows, folded=True),
            settings_table("Settings of the sweep", recipe),
            attempt_table(view.sweep.attempts),
        ]
    )
