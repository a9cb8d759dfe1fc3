"""A sweep on the page, ended or not."""

from train.sweep.trial_result import STATES
from workflows.report.load import SweepFolder
from workflows.report.parts import Section, duration
from workflows.report.sweep_comparison import best_blocks, fair_blocks, seed_blocks, trade_blocks
from workflows.report.sweep_knobs import effect_blocks, parallel_blocks
from workflows.report.sweep_trials import curve_blocks, failed_blocks, not_run_blocks, recipe_blocks, trial_blocks
from workflows.report.sweep_view import SweepView


def sweep_section(folder: SweepFolder) -> Section:
    """The section of one sweep: what is best, what each knob does, what became of every trial."""
    view = SweepView(folder)
    states = [trial.state for trial in view.trials]
    numbers = [(view.loss(view.ranked[0].setting), "best held-out loss (nats)")] if view.ranked else []
    numbers.append((str(len(states)), "trials"))
    numbers += [(str(states.count(state)), state.replace("_", " ")) for state in STATES if state in states]
    if folder.skipped:
        numbers.append((str(sum(folder.skipped.values())), "settings that cannot work"))
    seconds = sum(trial.last.get("train_seconds", 0.0) for trial in view.trials)
    if seconds:
        numbers.append((duration(seconds), "training time of all trials"))
    parts = (
        best_blocks, trade_blocks, effect_blocks, parallel_blocks, curve_blocks, fair_blocks, seed_blocks,
        trial_blocks, failed_blocks, not_run_blocks, recipe_blocks,
    )  # fmt: skip
    title = f"Sweep · {folder.name}" + ("" if folder.ended else " (not ended)")
    return Section(title, str(folder.path), numbers, [block for part in parts for block in part(view)])
