"""What became of every trial of a sweep: learning curves, the table, failures, what was not run, the settings."""

from tokenfree.train.sweep.results.trial_result import STATES, TrialResult, is_number, shown
from tokenfree.train.sweep.space.targets import LOSS, SPEED
from tokenfree.workflows.report.figures import sweep_figures as figures
from tokenfree.workflows.report.sections.parts import Block, Table, count, decimal, flat
from tokenfree.workflows.report.sections.sweep_view import LOSS_NAME, MOST_PICTURED, UNITS, SweepView, cell

MOST_STEPS = 12  # columns of the table of losses by step


def curve_blocks(view: SweepView) -> list[Block]:
    """Held-out loss of every trial by steps and by time."""
    winner = view.ranked[0].setting if view.ranked else None
    best = (winner.name, [trial.name for trial in winner.trials]) if winner else ("", [])
    pictures = []
    for unit, title in (("step", "Learning curves by steps"), ("train_seconds", "Learning curves by time")):
        curves = []
        for trial in view.trials[:MOST_PICTURED]:
            points = [(report.get(unit), report.get(LOSS.metric)) for report in trial.reports]
            points = [(x, y) for x, y in points if is_number(x) and is_number(y)]
            if points:
                curves.append((trial.name, trial.state, [x for x, _ in points], [y for _, y in points]))
        if curves:
            pictures.append(figures.learning_curves(curves, best=best, x=UNITS[unit][0], y=LOSS_NAME, title=title))
    if not pictures:
        return []
    text = "Validation uses the same windows and masks in every trial."
    return [Block("Learning curves", text, pictures=pictures, tables=[_curve_table(view)])]


def trial_blocks(view: SweepView) -> list[Block]:
    """All trials, those that got furthest first."""
    if not view.trials:
        return []
    common = view.common if view.common != view.amount else None
    header = ["trial", *["seed"] * view.seeded, "state", *view.names.values(), "step", "loss"]
    header += [] if common is None else [f"loss at {UNITS[view.unit][1](common)}"]
    header += ["accuracy", "characters/s", "seconds", "parameters"]
    rows = [_row(view, trial, common) for trial in sorted(view.trials, key=view.order)]
    met = {trial.state for trial in view.trials}
    said = "; ".join(f"{state}: {meaning}" for state, meaning in STATES.items() if state in met)
    text = f"Those that got furthest first, then by loss. {said[:1].upper()}{said[1:]}."
    return [Block("All trials", text, tables=[Table("Trials with their last report", header, rows)])]


def failed_blocks(view: SweepView) -> list[Block]:
    """What each failed trial said."""
    failed = [trial for trial in view.trials if trial.state == "failed"]
    rows = [[trial.name, trial.error or "no message", view.described(trial.values)] for trial in failed]
    table = Table("Errors", ["trial", "its own error", "values"], rows)
    return [Block("Failed trials", "They take no part in any comparison.", tables=[table])] if failed else []


def not_run_blocks(view: SweepView) -> list[Block]:
    """Settings and trials that were not run, and why."""
    blocks = []
    if view.sweep.skipped:
        rows = [[reason, str(number)] for reason, number in sorted(view.sweep.skipped.items())]
        text = "Settings that the search drew from the space and passed over, because the recipe refuses them."
        blocks.append(Block("Not run", text, tables=[Table("Why", ["why", "settings"], rows)]))
    waiting = [trial for trial in view.trials if trial.state == "waiting"]
    if waiting:
        rows = [[trial.name, STATES[trial.state], view.described(trial.values)] for trial in waiting]
        blocks.append(Block("Not begun", tables=[Table("Trials without a report", ["trial", "why", "values"], rows)]))
    return blocks


def recipe_blocks(view: SweepView) -> list[Block]:
    """The recipe of the sweep, closed."""
    recipe = view.sweep.recipe
    own = flat({key: value for key, value in recipe.items() if key not in ("base", "variants")})
    tables = [Table("Settings of the sweep", ["key", "value"], own, folded=True)]
    if recipe.get("base"):
        tables.append(Table("The base recipe", ["key", "value"], flat(recipe["base"]), folded=True))
    return [Block("Settings", tables=tables)]


def _row(view: SweepView, trial: TrialResult, common: float | None) -> list[str]:
    last = trial.last
    return [
        trial.name,
        *[shown(trial.seed)] * view.seeded,
        trial.state,
        *(shown(trial.values.get(key)) or "–" for key in view.knobs),
        cell(last.get("step"), count),
        cell(last.get(LOSS.metric), decimal),
        *([] if common is None else [decimal(trial.value_at(LOSS.metric, common, view.unit))]),
        cell(last.get("validation_accuracy"), lambda value: f"{100 * value:.1f}%"),
        cell(last.get(SPEED.metric), count),
        cell(last.get("train_seconds"), lambda value: f"{value:.1f}"),
        cell(last.get("parameters"), count),
    ]


def _curve_table(view: SweepView) -> Table:
    steps = sorted({report["step"] for trial in view.trials for report in trial.reports if "step" in report})
    if len(steps) > MOST_STEPS:
        steps = [steps[index * (len(steps) - 1) // (MOST_STEPS - 1)] for index in range(MOST_STEPS)]
    rows = [
        [trial.name, trial.state, *(decimal(trial.value_at(LOSS.metric, step)) for step in steps)]
        for trial in view.trials
        if trial.reports
    ]
    return Table("Loss by step", ["trial", "state", *(f"{step:,.0f}" for step in steps)], rows, folded=True)
