"""Settings of a sweep compared: the best and its cost, quality against cost, steps against time, seeds."""

import shlex
from collections.abc import Sequence

from tokenfree.train.sweep.results.compare import MeanInterval, Setting, full_amount, mean_interval, rank, settings
from tokenfree.train.sweep.results.trial_result import is_number, shown
from tokenfree.train.sweep.space.targets import LOSS, SPEED
from tokenfree.workflows.report.figures import sweep_figures as figures
from tokenfree.workflows.report.figures.trade_figure import Dot, trade
from tokenfree.workflows.report.sections.parts import Block, Table, count, decimal, duration
from tokenfree.workflows.report.sections.sweep_view import (
    FLOPS,
    LOSS_NAME,
    UNITS,
    SweepView,
    cell,
    plus_minus,
    target_name,
)

COSTS = {
    "parameters": ("parameters", count),
    "characters_per_second": ("characters per second", count),
    "train_seconds": ("training time", duration),
    "step": ("steps", count),
    "characters": ("characters read", count),
    "flops": ("FLOPs", count),
}
MOST_RANKED = 20


def best_blocks(view: SweepView) -> list[Block]:
    """The best setting, how sure that is, what it costs, and the command that trains it."""
    if not view.ranked:
        if view.trials and all(trial.state == "failed" for trial in view.trials):
            reason = "every trial failed"
        else:
            reason = "no trial has reported yet" if view.amount is None else "no loss is a number"
        return [Block("Best setting", f"There is none: {reason}.")]
    winner, found = view.ranked[0].setting, view.ranked[0].interval
    seeds = f"mean of {found.count} seeds with its 95% interval by Student's t" if found.half else "one seed"
    text = f"{winner.name}: {view.praise(winner, 4)} at {view.at} ({seeds}). {_doubt(view)}"
    command = ""
    if view.sweep.ended:
        path = shlex.quote(str(view.sweep.path / "best.yaml"))
        text += " best.yaml is its recipe, with the number of steps of the base recipe"
        if view.quality == LOSS:
            text += "; DIR is the data directory."
            command = f"tokenfree pretrain {path} --data DIR --output RUN"
        else:
            text += "; its runs, fine-tuned already, are in trials/. The table for a paper:"
            command = f"tokenfree report {shlex.quote(str(view.sweep.path))} --format markdown"
    rows = [[view.names[key], key, shown(winner.values.get(key)) or "not set"] for key in view.knobs]
    tables = [
        Table("Its values", ["knob", "key in the recipe", "value"], rows),
        Table("What it costs", ["", winner.name, "median of those compared", "ratio"], _costs(view, winner)),
    ]
    return [Block("Best setting", text, command, tables=tables)]


def trade_blocks(view: SweepView) -> list[Block]:
    """Quality against cost, by arithmetic and by measured speed, with the fronts."""
    fronts = {
        title: [item.setting.name for item in view.front((LOSS, target))]
        for title, target in (("FLOPs", FLOPS), ("speed", SPEED))
    }
    if {target.metric for target in view.targets} - {LOSS.metric, SPEED.metric}:
        fronts["objectives"] = [item.setting.name for item in view.front(view.targets)]
    dots = {title: _dots(view, title, fronts[title]) for title in ("FLOPs", "speed")}
    naming = " · ".join(view.names[key] for key in view.naming) or "number of the setting"
    pictures = [
        trade(dots[title], title=f"Quality against {title}", x=x, y=LOSS_NAME, names=naming, more_is_better=more)
        for title, x, more in (
            ("FLOPs", "FLOPs for each character read", False),
            ("speed", "characters per second, pooled over equal models", True),
        )
        if any(not dot.stopped for dot in dots[title])
    ]
    if not pictures:
        return []
    text = (
        f"The front: the settings that no other one beats in both, among the {len(view.front_ranked)} that got to "
        f"{view.front_at}, the furthest that at least three got to. FLOPs are counted, do not depend on the machine, "
        "and are compared to two digits. Speed is measured; trials of equal models share the mean over all their steps."
    )
    led = [item for item in view.front_ranked if any(item.setting.name in names for names in fronts.values())]
    rows = []
    for item in sorted(led, key=lambda item: view.cost(item.setting).speed or 0.0):
        cost = view.cost(item.setting)
        rows.append([
            item.setting.name,
            " and ".join(title for title, names in fronts.items() if item.setting.name in names),
            plus_minus(item.interval if view.targets[0] == LOSS else _loss(view, item.setting)),
            cell(cost.flops, count), cell(cost.speed, count), str(cost.num_trials), *view.values(item.setting),
        ])  # fmt: skip
    header = ["setting", "front of", LOSS_NAME, "FLOPs a character", "characters/s", "trials pooled"]
    table = Table("The front, slowest first", [*header, *view.names.values()], rows)
    return [Block("Quality against cost", text, pictures=pictures, tables=[table])]


def _dots(view: SweepView, title: str, fronted: Sequence[str]) -> list[Dot]:
    """The settings by loss and cost: those that are compared, and those that were stopped before."""
    compared = {item.setting.name: item for item in view.front_ranked}
    most = max((item.interval.count for item in view.front_ranked), default=0)
    dots = []
    for setting in settings(view.trials):
        cost = view.cost(setting)
        x, item = cost.flops if title == "FLOPs" else cost.speed, compared.get(setting.name)
        if item is not None:
            found = _loss(view, setting)
        else:
            lasts = [trial.last.get(LOSS.metric) for trial in setting.trials if trial.state != "failed"]
            found = mean_interval([float(loss) for loss in lasts if is_number(loss)])
        if x is not None and found is not None and is_number(found.mean):
            few = item is not None and item.interval.count < most
            name = view.short_name(setting)
            dots.append(Dot(name, x, found.mean, setting.name in fronted, few=few, stopped=item is None))
    return dots


def _loss(view: SweepView, setting: Setting) -> MeanInterval | None:
    """The held-out loss where quality is held against cost."""
    return None if view.front_amount is None else setting.interval(LOSS.metric, view.front_amount, view.unit)


def fair_blocks(view: SweepView) -> list[Block]:
    """The same settings ranked at equal steps and at equal training seconds."""
    steps, seconds = full_amount(view.trials, "step"), full_amount(view.trials, "train_seconds")
    if steps is None or seconds is None:
        return []
    amounts = {"step": steps, "train_seconds": seconds}
    orders = [rank(view.trials, target=view.quality, unit=unit, amount=amount) for unit, amount in amounts.items()]
    ranks = [{item.setting.name: number for number, item in enumerate(order, 1)} for order in orders]
    losses = [{item.setting.name: plus_minus(item.interval) for item in order} for order in orders]
    names = list(dict.fromkeys(item.setting.name for order in orders for item in order))
    both = [name for name in names if all(name in found for found in ranks)]
    if len(both) < 2:
        return []
    rows = [
        [
            name,
            *(cell for found, loss in zip(ranks, losses, strict=True)
              for cell in (str(found.get(name, "–")), loss.get(name, "–"))),
            f"{ranks[0][name] - ranks[1][name]:+d}".replace("+0", "0") if name in both else "–",
        ]
        for name in names
    ]  # fmt: skip
    text = (
        f"Equal steps ({UNITS['step'][1](steps)}) ask what a setting learns from the same data. Equal time "
        f"({UNITS['train_seconds'][1](seconds)}, which every finished trial used; losses between two validations are "
        "taken on the straight line) asks what it learns on the same machine. Settings that rise (solid) do so by "
        "their speed; those that fall (dashed) owe their rank to more time."
    )
    pictured = both[:MOST_RANKED]
    if len(both) > len(pictured):
        text += f" The picture has the {len(pictured)} best at equal steps, ranked among themselves."
    by_time = sorted(pictured, key=ranks[1].__getitem__)
    picture = figures.change_of_rank(
        [(name, number, by_time.index(name) + 1) for number, name in enumerate(pictured, 1)],
        left="equal steps",
        right="equal time",
        best=names[0],
    )
    what = "loss" if view.quality == LOSS else target_name(view.quality.metric)
    header = ["setting", "rank, equal steps", what, "rank, equal time", what, "places gained"]
    table = Table("Both rankings", header, rows, folded=len(rows) > MOST_RANKED)
    return [Block("Equal steps and equal time", text, pictures=[picture], tables=[table])]


def seed_blocks(view: SweepView) -> list[Block]:
    """Mean and interval of each setting over its seeds."""
    if not view.seeded or view.amount is None:
        return []
    found = []
    for item in view.ranked:
        values = [value for _, value in item.setting.reached(view.quality.metric, view.amount, view.unit)]
        interval = mean_interval(values)
        if interval is not None:
            found.append((item.setting, interval, values))
    if not found:
        return []
    text = (
        f"Means at {view.at} over the seeds that got there, with 95% intervals by Student's t (one degree of freedom "
        "less than seeds). Settings with more seeds stand first, and the others are not compared with them: the seeds "
        "that a scheduler let go on are its luckier ones. Strokes are seeds; a hollow diamond is a single one."
    )
    pictured = [(setting.name, interval, values) for setting, interval, values in found[:MOST_RANKED]]
    picture = figures.intervals(pictured, x=target_name(view.quality.metric))
    rows = [
        [item.name, str(interval.count), plus_minus(interval), ", ".join(map(decimal, values)), *view.values(item)]
        for item, interval, values in found
    ]
    table = Table(
        "Settings over seeds",
        ["setting", "seeds", "mean", "each seed", *view.names.values()],
        rows,
        len(rows) > MOST_RANKED,
    )
    return [Block("Over seeds", text, pictures=[picture], tables=[table])]


def _doubt(view: SweepView) -> str:
    """How sure the first rank is."""
    if len(view.ranked) < 2:
        return "No other setting got so far."
    first, second = view.ranked[0].interval, view.ranked[1].interval
    behind = f"The next, {view.ranked[1].setting.name}, is {abs(second.mean - first.mean):.4f} behind"
    if second.count < first.count:
        return f"No other setting got there with {first.count} seeds."
    if first.half is None or second.half is None:
        return f"{behind}; how much of that is chance, only more seeds can tell."
    sure = abs(second.mean - first.mean) > (first.half**2 + second.half**2) ** 0.5
    return (
        f"{behind}, {'more than the spread over seeds explains' if sure else 'which the spread over seeds explains'}."
    )


def _costs(view: SweepView, winner: Setting) -> list[list[str]]:
    """Rows of what the best setting used up to where settings are compared, beside the median of all compared."""
    rows = []
    for metric, (name, form) in COSTS.items():
        found = [view.mean_of_last(item.setting, metric) for item in view.ranked]
        known = sorted(value for value in found if value is not None)
        own = view.mean_of_last(winner, metric)
        if own is not None:
            middle = known[len(known) // 2]
            rows.append([name, form(own), form(middle), f"{own / middle:.2f}" if middle else "–"])
    return rows
