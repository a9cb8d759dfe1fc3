"""A sweep on the page, ended or not."""

from tokenfree.train.sweep.results.trial_result import STATES
from tokenfree.workflows.report.load import SweepRecord
from tokenfree.workflows.report.sections.parts import Section, duration
from tokenfree.workflows.report.sections.sweep_comparison import best_blocks, fair_blocks, seed_blocks, trade_blocks
from tokenfree.workflows.report.sections.sweep_knobs import effect_blocks, parallel_blocks
from tokenfree.workflows.report.sections.sweep_trials import (
    curve_blocks,
    failed_blocks,
    not_run_blocks,
    recipe_blocks,
    trial_blocks,
)
from tokenfree.workflows.report.sections.sweep_view import SweepView


def sweep_section(sweep: SweepRecord) -> Section:
    """The section of one sweep: what is best, what each knob does, what became of every trial."""
    view = SweepView(sweep)
    states = [trial.state for trial in view.trials]
    numbers = [(view.loss(view.ranked[0].setting), "best held-out loss (nats)")] if view.ranked else []
    numbers.append((str(len(states)), "trials"))
    numbers += [(str(states.count(state)), state) for state in STATES if state in states]
    if sweep.skipped:
        numbers.append((str(sum(sweep.skipped.values())), "settings that cannot work"))
    seconds = sum(trial.last.get("train_seconds", 0.0) for trial in view.trials)
    if seconds:
        numbers.append((duration(seconds), "training time of all trials"))
    parts = (
        best_blocks, trade_blocks, effect_blocks, parallel_blocks, curve_blocks, fair_blocks, seed_blocks,
        trial_blocks, failed_blocks, not_run_blocks, recipe_blocks,
    )  # fmt: skip
    title = f"Sweep · {sweep.name}" + ("" if sweep.ended else " (not ended)")
    return Section(title, str(sweep.path), numbers, [block for part in parts for block in part(view)])
