"""What the knobs of a sweep do: effects with intervals, importance, and all settings at once."""

from tokenfree.train.sweep.results.effects import levels
from tokenfree.train.sweep.results.trial_result import TrialResult
from tokenfree.workflows.report.figures import sweep_figures as figures
from tokenfree.workflows.report.sections.parts import Block, Table
from tokenfree.workflows.report.sections.sweep_view import (
    LOSS_NAME,
    MOST_PICTURED,
    UNITS,
    SweepView,
    plus_minus,
    target_name,
)


def effect_blocks(view: SweepView) -> list[Block]:
    """Each knob against the loss: where all trials got to, and where the longest ended."""
    if view.common is None or view.amount is None:
        return []
    compared = view.losses_at(view.common)
    at = UNITS[view.unit][1](view.common)
    text = (
        f"Losses at {at}, to which all {len(compared)} of these trials got, so none was picked by the scheduler. A "
        "grey dot is a trial. A diamond is the mean over the trials with that value (or in that range of values), and "
        "its bar the 95% interval of the mean by Student's t over those trials: it holds what seeds and the other "
        "knobs did to them. A hollow diamond is a single trial, which has no interval. A bar that runs out of the "
        "picture is cut there and ends in an arrowhead."
    )
    blocks = _effects(view, compared, "What each knob does", text)
    if blocks and view.amount > view.common:
        survivors = view.losses_at(view.amount)
        text = f"The same at {view.at}, for the {len(survivors)} trials that the scheduler let go so far."
        blocks += _effects(view, survivors, "What each knob does in the end", text)
    return [*blocks, *_importance(view, at)]


def parallel_blocks(view: SweepView) -> list[Block]:
    """Every setting that was trained to the end as a line over all knobs."""
    if len(view.ranked) < 2 or not view.knobs:
        return []
    lines = [
        (item.setting.name, {view.names[key]: value for key, value in item.setting.values.items()}, item.interval.mean)
        for item in view.ranked[:MOST_PICTURED]
    ]
    text = (
        f"Each line is a setting that got to {view.at}, and crosses each axis at its value. Darker and thicker lines "
        "(on dark paper lighter ones) are better; the best has dots. The numbers are in the table of all trials."
    )
    log = {view.names[key] for key in view.knobs if view.is_log(key)}
    picture = figures.parallel(lines, list(view.names.values()), y=target_name(view.targets[0].metric), log=log)
    return [Block("All settings at once", text, pictures=[picture])]


def _effects(view: SweepView, compared: list[tuple[TrialResult, float]], title: str, text: str) -> list[Block]:
    searched = view.searched(compared)
    if len(compared) < 2 or not searched:
        return []
    losses = [loss for _, loss in compared]
    margin = 0.08 * (max(losses) - min(losses)) or 0.1
    limits = (min(losses) - margin, max(losses) + margin)
    pictures, rows = [], []
    for key in searched:
        name, values = view.names[key], [trial.values.get(key) for trial, _ in compared]
        found = levels(values, losses)
        pictures.append(
            figures.effect(name, values, losses, found, y="held-out loss", limits=limits, log=view.is_log(key))
        )
        rows += [[name, level.label, str(level.interval.count), plus_minus(level.interval)] for level in found]
    table = Table("Mean loss by value", ["knob", "value", "trials", LOSS_NAME], rows, folded=True)
    return [Block(title, text, pictures=pictures, small=True, tables=[table])]


def _importance(view: SweepView, at: str) -> list[Block]:
    found = view.importances
    if not found:
        return []
    rest = max(0.0, 1 - sum(item.share for item in found))
    text = (
        f"The share of the variance of the loss between trials at {at} that a knob explains by itself (functional "
        f"ANOVA over a forest of regression trees); {100 * rest:.0f}% is left to knobs acting together. The thin line "
        "holds 95% of the trees. The upright mark is what a knob without any effect stays below in 95% of shuffled "
        "trials: a bar that ends left of it says nothing."
    )
    parts = ((item.knob, item.share, item.low, item.high, item.chance) for item in found)
    rows = [[name, *(f"{100 * number:.0f}%" for number in numbers)] for name, *numbers in parts]
    table = Table("Importance of each knob", ["knob", "share", "lower end", "upper end", "by chance below"], rows)
    return [Block("Importance", text, pictures=[figures.importance(found)], tables=[table])]
