"""Section of a sweep, ended or not: the best setting, effects of hyperparameters, cost, and all trials."""

import shlex
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from tokenfree.core.storage import Storage
from tokenfree.train.intervals import MeanInterval
from tokenfree.train.sweep import results
from tokenfree.train.sweep.history import BEST_FILE, is_number
from tokenfree.train.sweep.recipe import LOSS, SPEED, Target, objectives, quality
from tokenfree.train.sweep.results import METRICS, Setting, shown
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.figures import Dot, inline
from tokenfree.workflows.report.load import SweepRecord, attempt_table, machine_line, state
from tokenfree.workflows.report.parts import (
    Block,
    Card,
    Section,
    Table,
    count,
    cut,
    decimal,
    duration,
    plus_minus,
    settings_table,
)
from tokenfree.workflows.report.samples import Asked, Model, has_checkpoints
from tokenfree.workflows.terminal.progress import counted

UNITS = {"step": "step", "characters": "characters", "flops": "FLOPs", "train_seconds": "training seconds"}
BUDGETS = {"characters": "characters", "flops": "flops", "seconds": "train_seconds"}
FLOPS = Target("flops_per_character")
LOSS_NAME = "held-out loss (nats)"
MOST_FIGURED = 400  # trials in one figure
MOST_ROWS = 20  # rows of a settings table that is not folded
LEAST_TRIALS = 6  # minimum for shares of the variance
MOST_NAMING = 4  # hyperparameters whose values name a setting in figures
CHEAPER = 1.05  # speed ratio from which a faster setting gets a card


class SweepView:
    """A sweep with its settings ranked at the same amount of the budget's unit."""

    def __init__(self, sweep: SweepRecord) -> None:
        self.sweep, self.trials = sweep, list(sweep.trials)
        keys = results.hyperparameters(self.trials)
        self.names = dict(zip(keys, results.short_names(keys), strict=True))  # by dotted key
        budget = sweep.recipe.get("budget") or {}
        # The field of the reports that the budget counts.
        self.unit = next((field for key, field in BUDGETS.items() if budget.get(key) is not None), "step")
        names = sweep.recipe.get("objectives") or [LOSS.metric]
        # `target` ranks the settings; `quality` judges a trial: the held-out loss, or the score of a task.
        self.target, self.quality = objectives(names)[0], quality(names)
        self.amount = results.full_amount(self.trials, self.unit)  # None before the first report
        self.ranked = results.rank(self.trials, target=self.target, unit=self.unit, amount=self.amount)
        # Loss is compared with cost at an amount that three settings reached.
        self.front_amount = results.front_amount(self.trials, self.unit)
        self.front_ranked = results.rank(self.trials, target=self.target, unit=self.unit, amount=self.front_amount)

    def at(self, amount: float) -> str:
        """Return an amount of the budget in words, such as `step 90`."""
        return f"{UNITS[self.unit]} {count(amount)}"

    def loss(self, setting: Setting) -> float | None:
        """Return the mean loss of a setting at the amount where loss is compared with cost."""
        found = setting.interval(LOSS.metric, self.front_amount or 0.0, self.unit)
        return None if found is None else found.mean

    def front(self, target: Target) -> list[str]:
        """Return the names of the settings on the Pareto front of loss and `target`.

        Costs are compared to two digits, because a smaller difference is no reason to prefer a setting.
        """
        if self.front_amount is None:
            return []
        cost_of = attrgetter("arithmetic" if target == FLOPS else "slowness")
        found = results.front(self.front_ranked, LOSS, self.front_amount, self.unit, cost_of)
        return [item.setting.name for item in found]

    def short_name(self, setting: Setting) -> str:
        """Return the values that differ between trials, as `4 · 0.5 · full`, or the number of the setting.

        The number is returned if more than `MOST_NAMING` hyperparameters differ, or none.
        """
        differing = [key for key in self.names if len({shown(trial.values.get(key)) for trial in self.trials}) > 1]
        values = [setting.values.get(key) for key in differing] if len(differing) <= MOST_NAMING else []
        parts = [f"{value:.3g}" if isinstance(value, float) else cut(shown(value) or "–", 14) for value in values]
        return " · ".join(parts) or str(setting.index)

    def described(self, values: Mapping[str, Any]) -> str:
        """Return values as `rate = 4, alpha = 0.5`."""
        said = ", ".join(f"{self.names[key]} = {shown(value)}" for key, value in sorted(values.items()))
        return said or "the base recipe"


def sweep_section(view: SweepView, asked: Asked) -> Section:
    """Return the section of one sweep."""
    predictions = Block("Predictions of the best trial" * bool(asked.examples), asked.problem, tables=asked.examples)
    parts = (_effects, _cost, _parallel, _settings, _curves, _trials)
    blocks = [_best(view), predictions, *(block for part in parts for block in part(view))]
    return Section(f"Sweep · {view.sweep.path.name}", state(view.sweep, view.sweep.ended), list(_cards(view)), blocks)


def best_model(view: SweepView) -> Model | None:
    """Return the model of the best trial of a finished pretraining sweep, if it has checkpoints."""
    if not view.sweep.ended or view.quality != LOSS:
        return None
    winner = results.best(view.trials, target=view.target, unit=view.unit)
    if winner is None or not has_checkpoints(view.sweep.path / "trials" / winner.name):
        return None
    recipe = BEST_FILE.yaml(Storage.at(str(view.sweep.path)), results.BEST)
    return Model(view.sweep.path / "trials" / winner.name, recipe, view.sweep.data, None)


def _name(target: Target) -> str:
    return LOSS_NAME if target == LOSS else target.metric.replace("_", " ")


def _interval(found: MeanInterval | None, digits: int = 4) -> str:
    return "–" if found is None else plus_minus(found.mean, found.half, digits)


def _cards(view: SweepView) -> Iterator[Card]:
    if view.ranked and view.amount is not None:
        setting = view.ranked[0].setting
        found = setting.interval(view.quality.metric, view.amount, view.unit)
        seeds = "one seed" if found is None or found.count == 1 else f"mean of {found.count} seeds, 95% interval"
        yield Card("Best setting", view.short_name(setting), f"{setting.name}: {view.described(setting.values)}")
        yield Card(f"Best {_name(view.quality)}", _interval(found, 3), f"At {view.at(view.amount)}, {seeds}.")
        for item in view.ranked[1:2]:
            lead = abs(item.interval.mean - view.ranked[0].interval.mean)
            if item.interval.count == view.ranked[0].interval.count:
                note = f"{item.setting.name}: {_interval(item.interval)}"
                yield Card("Lead over the next setting", f"{lead:.4f}", note)
        yield from _cheaper(view, setting)
    for name, value in view.sweep.scores.get("test", {}).items():
        if "/" not in name:
            yield Card(f"{name.replace('_', ' ')}, test set", decimal(value), "Of the best setting, mean over seeds.")
    states = [trial.state for trial in view.trials]
    told = ", ".join(f"{states.count(state)} {state}" for state in results.STATES if state in states)
    skipped = sum(view.sweep.skipped.values())
    told += f"; {counted(skipped, 'setting')} that cannot work" if skipped else ""
    yield Card("Trials", str(len(states)), f"{told}." if told else "None yet.")
    seconds = sum(trial.last.get("train_seconds", 0.0) for trial in view.trials)
    if seconds:
        yield Card("Training time", duration(seconds), "Of all trials together.")
    found = [report["machine"] for trial in view.trials for report in trial.reports if report.get("machine")]
    machines = set(map(machine_line, found))
    if len(machines) > 1:
        yield Card("Machines", str(len(machines)), "Speeds of trials on different machines do not compare.")


def _cheaper(view: SweepView, winner: Setting) -> Iterator[Card]:
    """Yield a card that compares the fastest setting on the Pareto front with the best one, if it is notably faster."""
    leading = set(view.front(SPEED))
    known = [item.setting for item in view.front_ranked if item.setting.name in leading]
    own, amount = winner.cost.speed, view.front_amount
    if not known or not own or amount is None or view.quality != LOSS:
        return
    fastest = max(known, key=lambda setting: setting.cost.speed or 0.0)
    ratio, losses = (fastest.cost.speed or 0.0) / own, [view.loss(fastest), view.loss(winner)]
    flops = [setting.cost.arithmetic for setting in (fastest, winner)]
    is_equal = flops[0] is not None and flops[0] == flops[1]  # speeds of equal models differ by chance
    if ratio >= CHEAPER and losses[0] is not None and losses[1] is not None and not is_equal:
        note = f"{ratio:.1f} times as fast as the best setting, {losses[0] - losses[1]:+.3f} nats"
        yield Card("Fastest worthwhile setting", view.short_name(fastest), f"{note} at {view.at(amount)}.")


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
    """Yield a figure per hyperparameter at the amount that all trials reached, and the variance explained by each."""
    common = results.common_amount(view.trials, view.unit)
    if common is None:
        return
    found = [(trial, trial.value_at(LOSS.metric, common, view.unit)) for trial in view.trials]
    compared = [(trial, loss) for trial, loss in found if loss is not None and trial.state != "failed"]
    if len(compared) < 2:
        return
    losses = [loss for _, loss in compared]
    values = {key: [trial.values.get(key) for trial, _ in compared] for key in view.names}
    searched = {key: found for key, own in values.items() if len(found := results.levels(own, losses)) > 1}
    shares = {}
    if len(searched) > 1 and len(compared) >= LEAST_TRIALS:
        shares = results.importance([each.values for each, _ in compared], losses, list(searched))
    drawn, rows = [], []
    for key, found in searched.items():
        name, told = view.names[key], f"{100 * shares[key]:.0f}%" if key in shares else "–"
        rows += [[name, each.label, str(each.interval.count), _interval(each.interval), told] for each in found]
        drawn.append(inline(figures.effect(name, losses, found, LOSS_NAME), f"Held-out loss by {name}"))
    if rows:
        header = ["hyperparameter", "value", "trials", LOSS_NAME, "variance explained"]
        table = Table("Mean loss by value", header, rows, folded=True)
        text = f"{counted(len(compared), 'trial')} at {view.at(common)}. Bars: means with 95% intervals over trials."
        yield Block("What each hyperparameter does", text, figures=drawn, tables=[table])


def _cost(view: SweepView) -> Iterator[Block]:
    """Yield loss against each cost in which settings differ; none for equal models, whose speeds differ by chance."""
    models = {item.setting.cost.arithmetic for item in view.front_ranked}
    if len(models) == 1 and None not in models:
        return
    drawn = []
    for target, title, x, field in (
        (FLOPS, "Loss against arithmetic", "FLOPs for each character read", "flops"),
        (SPEED, "Loss against speed", "characters per second", "speed"),
    ):
        fronted = view.front(target)
        found = [(item.setting, getattr(item.setting.cost, field)) for item in view.front_ranked]
        dots = [
            Dot(view.short_name(setting), cost, loss, setting.name in fronted)
            for setting, cost in found
            if cost is not None and (loss := view.loss(setting)) is not None
        ]
        spent = [dot.cost for dot in dots]
        if len(dots) > 1 and max(spent) > min(spent):
            more = target.mode == "max"
            figure = figures.cost_against_loss(dots, title=title, x=x, y=LOSS_NAME, more_is_better=more)
            drawn.append(inline(figure, f"{title} of every setting"))
    if drawn and view.front_amount is not None:
        text = f"{counted(len(view.front_ranked), 'setting')} at {view.at(view.front_amount)}."
        yield Block("Cost against loss", text, figures=drawn)


def _parallel(view: SweepView) -> Iterator[Block]:
    """Yield a figure of all settings, if there are several hyperparameters and losses."""
    names = {
        key: name
        for key, name in view.names.items()
        if len({shown(item.setting.values.get(key)) for item in view.ranked}) > 1
    }
    lines = [(item.setting.values, item.interval.mean) for item in view.ranked[:MOST_FIGURED]]
    if len(names) > 1 and len(lines) > 2 and lines[0][1] != lines[-1][1]:
        figure = figures.parallel(lines, names, y=_name(view.target))
        yield Block(figures=[inline(figure, f"All settings and their {_name(view.target)}")])


def _settings(view: SweepView) -> Iterator[Block]:
    """Yield the table of settings, best first, with their seeds, costs and Pareto fronts."""
    if not view.ranked or view.amount is None:
        return
    fronts = {"FLOPs": view.front(FLOPS), "speed": view.front(SPEED)}
    time = results.full_amount(view.trials, "train_seconds")
    by_time = [] if time is None else results.rank(view.trials, target=view.quality, unit="train_seconds", amount=time)
    places = {item.setting.name: str(number) for number, item in enumerate(by_time, 1)}
    rows = []
    for number, item in enumerate(view.ranked, 1):
        setting, cost = item.setting, item.setting.cost
        leads = " and ".join(what for what, names in fronts.items() if setting.name in names)
        rows.append([
            str(number), setting.name, *(shown(setting.values.get(key)) or "–" for key in view.names),
            _interval(item.interval), str(item.interval.count), "–" if cost.flops is None else count(cost.flops),
            "–" if cost.speed is None else count(cost.speed), leads, places.get(setting.name, "–"),
        ])  # fmt: skip
    header = ["rank", "setting", *view.names.values(), _name(view.target), "seeds", "FLOPs a character", "characters/s"]
    header += ["best for its", "rank at equal time"]
    caption = f"Settings at {view.at(view.amount)}, best first"
    yield Block("Settings compared", tables=[Table(caption, header, rows, folded=len(rows) > MOST_ROWS)])


def _curves(view: SweepView) -> Iterator[Block]:
    winner = {trial.name for trial in view.ranked[0].setting.trials} if view.ranked else set()
    drawn = []
    for unit in ("step", "train_seconds"):
        lines = []
        for trial in view.trials[:MOST_FIGURED]:
            points = [(report.get(unit), report.get(LOSS.metric)) for report in trial.reports]
            points = [(x, y) for x, y in points if is_number(x) and is_number(y)]
            if points:
                xs, ys = zip(*points, strict=True)
                lines.append(("best" if trial.name in winner else trial.state, xs, ys))
        if lines:
            name = UNITS[unit]
            drawn.append(inline(figures.trials(lines, x=name, y=LOSS_NAME), f"Held-out loss of every trial by {name}"))
    if drawn:
        yield Block(figures=drawn)


def _trials(view: SweepView) -> Iterator[Block]:
    """Yield all trials, the settings that were not run, and the settings of the sweep."""
    lost = [trial for trial in view.trials if trial.state == "failed"]
    failed = [[trial.name, trial.error or "no message", view.described(trial.values)] for trial in lost]
    skipped = [[reason, str(number)] for reason, number in sorted(view.sweep.skipped.items())]
    rows = [
        [trial.name, shown(trial.seed), trial.state, *(shown(trial.values.get(key)) or "–" for key in view.names)]
        + [f"{trial.last[name]:,.5g}" if is_number(trial.last.get(name)) else "–" for name in METRICS]
        for trial in view.trials
    ]
    header = ["trial", "seed", "state", *view.names.values(), *(name.replace("_", " ") for name in METRICS)]
    recipe = {key: value for key, value in view.sweep.recipe.items() if key != "variants"}
    yield Block(
        tables=[
            Table("Failed trials, which take no part in comparisons", ["trial", "error", "values"], failed),
            Table("Settings that were not run, because the recipe refuses them", ["why", "settings"], skipped),
            Table("All trials with their last report", header, rows, folded=True),
            settings_table("Settings of the sweep", recipe),
            attempt_table(view.sweep.attempts),
        ]
    )
