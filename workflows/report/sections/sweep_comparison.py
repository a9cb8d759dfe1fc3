"""Settings of a sweep compared: the best and its cost, quality against speed, steps against time, seeds."""

import shlex

from tokenfree.train.sweep.results.compare import Setting, full_amount, mean_interval, rank
from tokenfree.train.sweep.results.trial_result import shown
from tokenfree.train.sweep.space.targets import LOSS
from tokenfree.workflows.report.figures import sweep_figures as figures
from tokenfree.workflows.report.sections.parts import Block, Table, count, decimal, duration
from tokenfree.workflows.report.sections.sweep_view import LOSS_NAME, UNITS, SweepView, plus_minus

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
    text = f"{winner.name}: held-out loss {view.loss(winner, 4)} nats at {view.at} ({seeds}). {_doubt(view)}"
    command = ""
    if view.sweep.ended:
        text += " best.yaml is its recipe, with the number of steps of the base recipe; DIR is the data directory."
        path = shlex.quote(str(view.sweep.path / "best.yaml"))
        command = f"tokenfree pretrain {path} --data DIR --output RUN"
    rows = [[view.names[key], key, shown(winner.values.get(key)) or "not set"] for key in view.knobs]
    tables = [
        Table("Its values", ["knob", "key in the recipe", "value"], rows),
        Table("What it costs", ["", winner.name, "median of those compared", "ratio"], _costs(view, winner)),
    ]
    return [Block("Best setting", text, command, tables=tables)]


def trade_blocks(view: SweepView) -> list[Block]:
    """Quality against speed, with the front."""
    if view.amount is None or not view.ranked:
        return []
    fronted = {item.setting.name for item in view.leading}
    dots = []
    for item in view.ranked:
        setting, few = item.setting, item.interval.count < view.ranked[0].interval.count
        loss = setting.interval(LOSS.metric, view.amount, view.unit)
        if loss is not None and view.speed(setting):
            dots.append(figures.Dot(setting.name, view.speed(setting), loss.mean, setting.name in fronted, few))
    if not dots:
        return []
    rows = [
        [item.setting.name, view.loss(item.setting, 4), count(view.speed(item.setting)), *view.values(item.setting)]
        for item in sorted(view.leading, key=lambda item: view.speed(item.setting))
    ]
    text = f"The front: the settings that no other one beats in both, among those that got to {view.at}."
    picture = figures.trade(dots, x="characters per second", y=LOSS_NAME)
    table = Table("The front, slowest first", ["setting", LOSS_NAME, "characters/s", *view.names.values()], rows)
    return [Block("Quality against speed", text, pictures=[picture], tables=[table])]


def fair_blocks(view: SweepView) -> list[Block]:
    """The same settings ranked at equal steps and at equal training seconds."""
    steps, seconds = full_amount(view.trials, "step"), full_amount(view.trials, "train_seconds")
    if steps is None or seconds is None:
        return []
    orders = [rank(view.trials, unit="step", amount=steps), rank(view.trials, unit="train_seconds", amount=seconds)]
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
    header = ["setting", "rank, equal steps", "loss", "rank, equal time", "loss", "places gained"]
    table = Table("Both rankings", header, rows, folded=len(rows) > MOST_RANKED)
    return [Block("Equal steps and equal time", text, pictures=[picture], tables=[table])]


def seed_blocks(view: SweepView) -> list[Block]:
    """Mean and interval of each setting over its seeds."""
    if not view.seeded or view.amount is None:
        return []
    found = []
    for item in view.ranked:
        values = [value for _, value in item.setting.reached(LOSS.metric, view.amount, view.unit)]
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
    picture = figures.intervals(pictured, x=LOSS_NAME)
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
