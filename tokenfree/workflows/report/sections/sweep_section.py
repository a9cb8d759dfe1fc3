"""A sweep on the page, ended or not."""

from tokenfree.train.sweep.results.trial_result import STATES
from tokenfree.workflows.report.attempts import machine_line
from tokenfree.workflows.report.sections.attempt_tables import attempt_block
from tokenfree.workflows.report.sections.parts import Block, Section, duration
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


def sweep_section(view: SweepView) -> Section:
    """The section of one sweep: what is best, what each knob does, what became of every trial."""
    sweep = view.sweep
    states = [trial.state for trial in view.trials]
    numbers = [view.best_number()] if view.ranked else []
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
    blocks = [block for part in parts for block in part(view)]
    return Section(title, str(sweep.path), numbers, [*blocks, _made_with(view)])


def _made_with(view: SweepView) -> Block:
    """The commands, and the machines on which the trials were."""
    machines: dict[str, set[str]] = {}
    for trial in view.trials:
        for report in trial.reports:
            if report.get("machine"):
                machines.setdefault(machine_line(report["machine"]), set()).add(trial.name)
    text = ""
    if len(machines) > 1:
        text = "Trials were on several machines, whose speeds do not compare: "
        text += "; ".join(f"{len(trials)} on {machine}" for machine, trials in machines.items()) + "."
    return attempt_block(view.sweep.attempts, text)
