"""A sweep on the page, ended or not: the best setting, what each hyperparameter does, cost, and every trial."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.train.sweep.history import BEST_FILE, TrialState, is_number
from tokenfree.train.sweep.recipe import LOSS, SPEED, Target, objectives, quality
from tokenfree.train.sweep.results import (
    BEST,
    STATES,
    MeanInterval,
    Ranked,
    Setting,
    TrainingCost,
    best,
    common_amount,
    costs,
    front,
    front_amount,
    full_amount,
    importance,
    knobs,
    levels,
    rank,
    settings,
    short_names,
    shown,
    two_digits,
)
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.figures import Dot, fits, inline
from tokenfree.workflows.report.load import SweepRecord, attempt_table, machine_line
from tokenfree.workflows.report.paper_table import read_paper_table
from tokenfree.workflows.report.parts import (
    Block,
    Card,
    Section,
    Table,
    count,
    counted,
    cut,
    decimal,
    duration,
    flat,
    percent,
)
from tokenfree.workflows.report.samples import Asked, Model, has_checkpoints

UNITS: Mapping[str, tuple[str, Callable[[float], str]]] = {  # of budgets: the name, and an amount of it
    "step": ("step", lambda amount: f"step {amount:,.0f}"),
    "characters": ("characters", lambda amount: f"{count(amount)} characters"),
    "flops": ("FLOPs", lambda amount: f"{count(amount)} FLOPs"),
    "train_seconds": ("training seconds", lambda amount: f"{amount:,.1f} training seconds"),
}
BUDGETS = {"characters": "characters", "flops": "flops", "seconds": "train_seconds"}
FLOPS = Target("flops_per_character")
COSTS = ((FLOPS, "FLOPs for each character read", "flops"), (SPEED, "characters per second", "speed"))
LOSS_NAME = "held-out loss (nats)"
MOST_FIGURED = 400  # trials in one figure
MOST_ROWS = 20  # settings in a table that is open
LEAST_TRIALS = 6  # for shares of a variance
MOST_NAMING = 4  # hyperparameters by whose values settings are named in figures
SAME_COST = 1.01  # ratio of costs up to which a figure of cost says nothing
CHEAPER = 1.05  # ratio of speeds from which a faster setting is worth a card


class SweepView:
    """A sweep with its settings ranked where they are compared: at the same amount of what the budget counts.

    Attributes:
        sweep: the sweep.
        trials: all its trials.
        names: a short name for each dotted key that they set.
        unit: the field of the reports that the budget counts.
        targets: what settings are ranked by, the first one first.
        quality: what says how good a trial is: the held-out loss or, of a task, the score.
        amount: the amount of `unit` at which settings are ranked; None before the first report.
        common: the amount that all ended trials got to.
        ranked: settings that got to `amount`, best first.
        front_amount: the amount of `unit` at which loss is held against cost.
        front_ranked: settings that got to `front_amount`.
        costs: the cost of each trial by its name.
    """

    def __init__(self, sweep: SweepRecord) -> None:
        self.sweep, self.trials = sweep, list(sweep.trials)
        keys = knobs(self.trials)
        self.names = dict(zip(keys, short_names(keys), strict=True))
        budget = sweep.recipe.get("budget") or {}
        self.unit = next((field for key, field in BUDGETS.items() if budget.get(key) is not None), "step")
        names = sweep.recipe.get("objectives") or [LOSS.metric]
        self.targets, self.quality = objectives(names), quality(names)
        self.amount, self.common = full_amount(self.trials, self.unit), common_amount(self.trials, self.unit)
        self.ranked = rank(self.trials, target=self.targets[0], unit=self.unit, amount=self.amount)
        self.front_amount, self.costs = front_amount(self.trials, self.unit), costs(self.trials)
        self.front_ranked: list[Ranked] = []
        if self.front_amount is not None:
            self.front_ranked = rank(self.trials, target=self.targets[0], unit=self.unit, amount=self.front_amount)

    def at(self, amount: float) -> str:
        """Return an amount of the budget in words, such as `step 90`."""
        return UNITS[self.unit][1](amount)

    def cost(self, setting: Setting) -> TrainingCost:
        """Return what a character costs a setting in training."""
        return self.costs.get(setting.trials[0].name, TrainingCost())

    def front(self, target: Target) -> list[str]:
        """Return the names of the settings that no other one beats in both loss and `target`.

        Costs are compared to two digits: a smaller difference is no reason to prefer a setting.
        """
        if self.front_amount is None:
            return []
        known = {
            SPEED.metric: {name: two_digits(cost.speed) for name, cost in self.costs.items()},
            FLOPS.metric: {name: two_digits(cost.flops) for name, cost in self.costs.items()},
        }
        found = front(self.front_ranked, (LOSS, target), self.front_amount, self.unit, known=known)
        return [item.setting.name for item in found]

    def short_name(self, setting: Setting) -> str:
        """Return the values of a setting that differ between trials, as `4 · 0.5 · full`; its number if too many do."""
        differing = [key for key in self.names if len({shown(trial.values.get(key)) for trial in self.trials}) > 1]
        values = [setting.values.get(key) for key in differing] if len(differing) <= MOST_NAMING else []
        parts = [f"{value:.3g}" if isinstance(value, float) else cut(shown(value) or "–", 14) for value in values]
        return " · ".join(parts) or str(setting.index)

    def described(self, values: Mapping[str, Any]) -> str:
        """Return values as `rate = 4, alpha = 0.5`."""
        return ", ".join(f"{self.names[key]} = {shown(value)}" for key, value in sorted(values.items()))

    def losses_at(self, amount: float) -> list[tuple[TrialState, float]]:
        """Return the trials that got to `amount`, with their loss there."""
        found = [(trial, trial.value_at(LOSS.metric, amount, self.unit)) for trial in self.trials]
        return [(trial, loss) for trial, loss in found if loss is not None and trial.state != "failed"]


def sweep_section(view: SweepView, asked: Asked) -> Section:
    """Return the section of one sweep."""
    title = f"Sweep · {view.sweep.name}" + ("" if view.sweep.ended else " (not ended)")
    parts = (_best, _effects, _cost, _parallel, _settings, _curves, _paper, _trials)
    blocks = [block for part in parts for block in part(view)]
    if asked.examples or asked.problem:
        tables = [asked.examples] if asked.examples else []
        blocks.insert(1, Block("Predictions of the best trial", asked.problem, tables=tables))
    return Section(title, str(view.sweep.path), list(_cards(view)), blocks)


def best_model(view: SweepView) -> Model | None:
    """Return the best trial of a sweep of pretraining that has ended, if it has checkpoints."""
    if not view.sweep.ended or view.quality != LOSS:
        return None
    winner = best(view.trials, target=view.targets[0], unit=view.unit)
    if winner is None or not has_checkpoints(view.sweep.path / "trials" / winner.name):
        return None
    recipe = BEST_FILE.yaml(Storage.at(str(view.sweep.path)), BEST)
    folder = view.sweep.path / "trials" / winner.name
    return Model(f"{view.sweep.name}: {winner.name}", folder, recipe, view.sweep.data, None)


def plus_minus(found: MeanInterval | None, digits: int = 4) -> str:
    """Return `4.2288 ± 0.0031`, a mean alone if there is no interval, or a dash."""
    if found is None:
        return "–"
    return f"{found.mean:.{digits}f}" + ("" if found.half is None else f" ± {found.half:.{digits}f}")


def _cards(view: SweepView) -> Iterator[Card]:
    if view.ranked and view.amount is not None:
        setting = view.ranked[0].setting
        found = setting.interval(view.quality.metric, view.amount, view.unit)
        name = LOSS_NAME if view.quality == LOSS else view.quality.metric.replace("_", " ")
        seeds = "one seed" if found is None or found.count == 1 else f"mean of {found.count} seeds, 95% interval"
        yield Card("Best setting", view.short_name(setting), view.described(setting.values))
        yield Card(f"Best {name}", plus_minus(found, 3), f"At {view.at(view.amount)}, {seeds}.")
        yield from _cheaper(view, setting)
    states = [trial.state for trial in view.trials]
    told = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    skipped = sum(view.sweep.skipped.values())
    told += f"; {counted(skipped, 'setting')} that cannot work" if skipped else ""
    yield Card("Trials", str(len(states)), f"{told}.".capitalize() if told else "None yet.")
    seconds = sum(trial.last.get("train_seconds", 0.0) for trial in view.trials)
    if seconds:
        yield Card("Training time", duration(seconds), "Of all trials together.")


def _cheaper(view: SweepView, winner: Setting) -> Iterator[Card]:
    """Yield what the fastest setting of the front gains and loses, unless it is as fast as the best one."""
    leading = set(view.front(SPEED))
    known = [item.setting for item in view.front_ranked if item.setting.name in leading]
    own, amount = view.cost(winner).speed, view.front_amount
    if not known or not own or amount is None or view.quality != LOSS:
        return
    fastest = max(known, key=lambda setting: view.cost(setting).speed or 0.0)
    ratio = (view.cost(fastest).speed or 0.0) / own
    losses = [setting.interval(LOSS.metric, amount, view.unit) for setting in (fastest, winner)]
    flops = [two_digits(view.cost(setting).flops) for setting in (fastest, winner)]
    is_equal = flops[0] is not None and flops[0] == flops[1]  # equal models differ in speed by chance
    if ratio >= CHEAPER and losses[0] and losses[1] and not is_equal:
        note = f"{ratio:.1f} times as fast as the best setting, {losses[0].mean - losses[1].mean:+.3f} nats"
        yield Card("Fastest worthwhile setting", view.short_name(fastest), f"{note} at {view.at(amount)}.")


def _best(view: SweepView) -> Iterator[Block]:
    """Yield how sure the best setting is, and the command that trains it."""
    if not view.ranked or view.amount is None:
        reason = "no trial has reported yet" if view.amount is None else "no loss is a number"
        if view.trials and all(trial.state == "failed" for trial in view.trials):
            reason = "every trial failed"
        yield Block("Best setting", f"There is none: {reason}.")
        return
    command, path = "", shlex.quote(str(view.sweep.path))
    if view.sweep.ended and view.quality == LOSS:
        command = f"tokenfree pretrain {shlex.quote(str(view.sweep.path / 'best.yaml'))} --data DIR --output RUN"
    elif view.sweep.ended:
        command = f"tokenfree report {path} --format markdown"
    winner = view.ranked[0].setting
    text = f"{winner.name}: {view.described(winner.values) or 'the base recipe'}. {_doubt(view)}"
    yield Block("Best setting", text, command)


def _doubt(view: SweepView) -> str:
    """Return how sure the first rank is."""
    if len(view.ranked) < 2:
        return "No other setting got so far."
    first, second = view.ranked[0].interval, view.ranked[1].interval
    behind = f"The next, {view.ranked[1].setting.name}, is {abs(second.mean - first.mean):.4f} behind"
    if second.count < first.count:
        return f"No other setting got there with {first.count} seeds."
    if first.half is None or second.half is None:
        return f"{behind}; only more seeds can tell how much of that is chance."
    sure = abs(second.mean - first.mean) > (first.half**2 + second.half**2) ** 0.5
    return f"{behind}, {'more than' if sure else 'within'} what the spread over seeds explains."


def _effects(view: SweepView) -> Iterator[Block]:
    """Yield a figure for each hyperparameter, where all trials got to, and the importances."""
    compared = [] if view.common is None else view.losses_at(view.common)
    if view.common is None or len(compared) < 2:
        return
    losses = [loss for _, loss in compared]
    values = {key: [trial.values.get(key) for trial, _ in compared] for key in view.names}
    searched = {key: found for key, own in values.items() if len(found := levels(own, losses)) > 1}
    shares = {}
    if len(searched) > 1 and len(compared) >= LEAST_TRIALS:
        shares = importance([each.values for each, _ in compared], losses, list(searched))
    drawn, rows, left_out = [], [], []
    for key, found in searched.items():
        name, told = view.names[key], f"{100 * shares[key]:.0f}%" if key in shares else "–"
        rows += [[name, each.label, str(each.interval.count), plus_minus(each.interval), told] for each in found]
        limits = effect_limits(losses, [each.interval for each in found])
        if limits is None:
            left_out.append(name)
        else:
            drawn.append(inline(figures.effect(name, losses, found, limits, LOSS_NAME), f"Held-out loss by {name}"))
    if not rows:
        return
    text = (
        f"Held-out losses of {counted(len(compared), 'trial')} at {view.at(view.common)}, to which all of them got. A "
        "dot is a trial, a diamond the mean of a value with its 95% interval, which holds what seeds and the other "
        "hyperparameters do. A hollow diamond has no useful interval."
    )
    if left_out:
        text += f" No figure for {', '.join(left_out)}: every interval is wider than the range of all trials."
    header = ["hyperparameter", "value", "trials", LOSS_NAME, "variance explained"]
    table = Table("Mean loss by value", header, rows, folded=True)
    yield Block("What each hyperparameter does", text, figures=drawn, tables=[table])


def effect_limits(losses: Sequence[float], found: Sequence[MeanInterval]) -> tuple[float, float] | None:
    """Return limits of an axis that hold all `losses` and the intervals that are no wider than twice their range.

    None if there are intervals and none of them fits.
    """
    low, high = min(losses), max(losses)
    room = (high - low) / 2 or 0.1
    known = [each for each in found if each.half is not None]
    fitting = [each for each in known if fits(each, (low - room, high + room))]
    if known and not fitting:
        return None
    ends = [each.mean + sign * (each.half or 0.0) for each in fitting for sign in (-1, 1)]
    margin = 0.08 * ((high - low) or 1.0)
    return min([low, *ends]) - margin, max([high, *ends]) + margin


def _cost(view: SweepView) -> Iterator[Block]:
    """Yield loss against cost, for each cost in which settings differ."""
    if view.front_amount is None:
        return
    drawn, same = [], []
    for target, x, field in COSTS:
        dots = list(_dots(view, field, view.front(target)))
        known = [dot.cost for dot in dots if not dot.stopped]
        if len(known) > 1 and max(known) < SAME_COST * min(known):
            same.append(f"{x} ({count(known[0])})")
        elif len(known) > 1:
            more = target.mode == "max"
            title = f"Loss against {'speed' if more else 'arithmetic'}"
            figure = figures.cost_against_loss(dots, title=title, x=x, y=LOSS_NAME, more_is_better=more)
            drawn.append(inline(figure, f"{title} of every setting"))
    text = (
        f"Settings by cost and by their loss at {view.at(view.front_amount)}, to which {len(view.front_ranked)} got. "
        "FLOPs are counted. Speed is measured."
    ) * bool(drawn)
    text += f" All settings have the same {' and '.join(same)}, so there is no figure of it." * bool(same)
    if drawn or same:
        yield Block("Cost against loss", text.strip(), figures=drawn)


def _dots(view: SweepView, field: str, fronted: Sequence[str]) -> Iterator[Dot]:
    """Yield the settings that are compared, and those that were stopped before at the loss that they had."""
    compared = {item.setting.name for item in view.front_ranked}
    for setting in settings(view.trials):
        cost, is_compared = getattr(view.cost(setting), field), setting.name in compared
        if is_compared and view.front_amount is not None:
            found = setting.interval(LOSS.metric, view.front_amount, view.unit)
            loss = None if found is None else found.mean
        else:
            lasts = [trial.last.get(LOSS.metric) for trial in setting.trials if trial.state != "failed"]
            known = [last for last in lasts if is_number(last)]
            loss = sum(known) / len(known) if known else None
        if cost is not None and is_number(loss):
            yield Dot(view.short_name(setting), cost, loss, setting.name in fronted, stopped=not is_compared)


def _parallel(view: SweepView) -> Iterator[Block]:
    """Yield all settings at once, if there are several hyperparameters and losses."""
    names = {
        key: name
        for key, name in view.names.items()
        if len({shown(item.setting.values.get(key)) for item in view.ranked}) > 1
    }
    lines = [(item.setting.values, item.interval.mean) for item in view.ranked[:MOST_FIGURED]]
    if len(names) < 2 or len(lines) < 3 or lines[0][1] == lines[-1][1]:
        return
    name = LOSS_NAME if view.targets[0] == LOSS else view.targets[0].metric.replace("_", " ")
    figure = figures.parallel(lines, names, y=name)
    yield Block("", figures=[inline(figure, f"All settings and their {name}")])


def _settings(view: SweepView) -> Iterator[Block]:
    """Yield the table of settings, best first, with their seeds, costs and fronts."""
    if not view.ranked or view.amount is None:
        return
    fronts = {"FLOPs": view.front(FLOPS), "speed": view.front(SPEED)}
    time = full_amount(view.trials, "train_seconds")
    by_time = [] if time is None else rank(view.trials, target=view.quality, unit="train_seconds", amount=time)
    places = {item.setting.name: str(number) for number, item in enumerate(by_time, 1)}
    rows = []
    for number, item in enumerate(view.ranked, 1):
        setting, cost = item.setting, view.cost(item.setting)
        leads = " and ".join(what for what, names in fronts.items() if setting.name in names)
        rows.append([
            str(number), setting.name, *(shown(setting.values.get(key)) or "–" for key in view.names),
            plus_minus(item.interval), str(item.interval.count), "–" if cost.flops is None else count(cost.flops),
            "–" if cost.speed is None else count(cost.speed), leads, places.get(setting.name, "–"),
        ])  # fmt: skip
    metric = LOSS_NAME if view.targets[0] == LOSS else view.targets[0].metric.replace("_", " ")
    header = ["rank", "setting", *view.names.values(), metric, "seeds", "FLOPs a character", "characters/s"]
    header += ["best for its", "rank at equal time"]
    text = (
        f"Ranked at {view.at(view.amount)}, those with more seeds first: the seeds that a scheduler lets go on are the "
        "luckier ones."
    )
    if time is not None:
        text += f" The last column ranks them at {duration(time)} of training, which every finished trial used."
    table = Table("Settings, best first", header, rows, folded=len(rows) > MOST_ROWS)
    yield Block("Settings compared", text, tables=[table])


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
            name = UNITS[unit][0]
            drawn.append(inline(figures.trials(lines, x=name, y=LOSS_NAME), f"Held-out loss of every trial by {name}"))
    if drawn:
        yield Block("", "Validation uses the same windows and masks in every trial.", figures=drawn)


def _paper(view: SweepView) -> Iterator[Block]:
    """Yield the scores of a sweep of a task, as they go into a paper."""
    if view.quality == LOSS or not view.sweep.ended:
        return
    try:
        found = read_paper_table([str(view.sweep.path)])
    except UserError as error:
        yield Block("For a paper", f"No table: {error}")
        return
    rows = [[*row, "best" if is_best else ""] for row, is_best in zip(found.body(" ± "), found.best, strict=True)]
    yield Block("For a paper", tables=[Table("Mean and 95% interval over seeds", [*found.header, ""], rows)])


def _trials(view: SweepView) -> Iterator[Block]:
    """Yield every trial, what was not run, and the settings of the sweep."""
    machines: dict[str, int] = {}
    for trial in view.trials:
        for line in {machine_line(report["machine"]): 0 for report in trial.reports if report.get("machine")}:
            machines[line] = machines.get(line, 0) + 1
    told = "; ".join(f"{number} on {machine}" for machine, number in machines.items())
    text = f"Trials were on several machines, whose speeds do not compare: {told}." if len(machines) > 1 else ""
    lost = [trial for trial in view.trials if trial.state == "failed"]
    failed = [[trial.name, trial.error or "no message", view.described(trial.values)] for trial in lost]
    skipped = [[reason, str(number)] for reason, number in sorted(view.sweep.skipped.items())]
    header = ["trial", "seed", "state", *view.names.values(), "step", LOSS_NAME, "accuracy", "characters/s", "seconds"]
    rows = [_row(view, trial) for trial in sorted(view.trials, key=lambda trial: _order(view, trial))]
    recipe = view.sweep.recipe
    own = flat({key: value for key, value in recipe.items() if key not in ("base", "variants")})
    base = flat(recipe["base"]) if recipe.get("base") else []
    tables = [
        Table("Failed trials, which take no part in comparisons", ["trial", "error", "values"], failed),
        Table("Settings that were drawn and not run, because the recipe refuses them", ["why", "settings"], skipped),
        Table("All trials with their last report, furthest first", [*header, "parameters"], rows, folded=True),
        Table("Settings of the sweep", ["key", "value"], own, folded=True),
        Table("The base recipe", ["key", "value"], base, folded=True),
        attempt_table(view.sweep.attempts),
    ]
    yield Block("", text, tables=[table for table in tables if table.rows])


def _row(view: SweepView, trial: TrialState) -> list[str]:
    last = trial.last

    def cell(name: str, form: Callable[[float], str]) -> str:
        return form(last[name]) if is_number(last.get(name)) else "–"

    return [
        trial.name, shown(trial.seed), trial.state, *(shown(trial.values.get(key)) or "–" for key in view.names),
        cell("step", count), cell(LOSS.metric, decimal), cell("validation_accuracy", percent),
        cell(SPEED.metric, count), cell("train_seconds", lambda value: f"{value:.1f}"), cell("parameters", count),
    ]  # fmt: skip


def _order(view: SweepView, trial: TrialState) -> tuple[float, float, str]:
    amount, loss = trial.last.get(view.unit), trial.last.get(LOSS.metric)
    return -amount if is_number(amount) else 1.0, loss if is_number(loss) else float("inf"), trial.name
