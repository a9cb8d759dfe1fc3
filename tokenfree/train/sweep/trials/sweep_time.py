"""How long a sweep will take: from a few steps by the clock, or from what its trials have used so far."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokenfree.train.sweep.control.history import History, TrialState
from tokenfree.train.sweep.control.placement import Placement
from tokenfree.train.sweep.control.trial_cost import TrialCost
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import SweepRecipe
from tokenfree.train.sweep.subjects.base import Subject
from tokenfree.train.sweep.trials.budget_steps import TIMED_STEPS, recipe_for_timing, seconds_of_step


@dataclass(frozen=True)
class TrialSpeed:
    """How fast trials are; those of other settings by their arithmetic.

    Attributes:
        seconds_per_flop: of training steps.
        validation_seconds: of a validation, for each floating point operation of a step.
        source: what was measured, in words.
    """

    seconds_per_flop: float
    validation_seconds: float
    source: str


@dataclass(frozen=True)
class SweepTime:
    """Seconds that a sweep takes, or that are left of it, between the least and the most that its scheduler allows."""

    least: float
    most: float


def measure(
    sweep: SweepRecipe, values: Values, cost: TrialCost, subject: Subject, placement: Placement, history: History
) -> TrialSpeed:
    """Time some steps and a validation of the setting `values`, alone on this machine, with a trial's threads.

    Where trials of `history` have reported, the speed of their steps counts in place of that.

    Raises:
        UserError: see `Subject.make_loop`.
    """
    reported = [trial.last for trial in history.trials.values() if trial.last.get("flops")]
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, int(placement.needs.cpus)))
    try:
        device = "cuda" if placement.needs.gpus else "cpu"
        loop = subject.make_loop(recipe_for_timing(sweep.recipe(values)), device=device)
        seconds = 0.0 if reported else seconds_of_step(loop) / sweep.workers
        began = time.perf_counter()
        loop.validate()
        validation = (time.perf_counter() - began) / sweep.workers
    finally:
        torch.set_num_threads(threads)
    per_flop, source = seconds / cost.step_flops, f"measured on {TIMED_STEPS} steps, {seconds:.3g} s each"
    if sweep.workers > 1:
        source += f" if {sweep.workers} workers are {sweep.workers} times as fast as one"
    if reported:
        per_flop = sum(last["train_seconds"] for last in reported) / sum(last["flops"] for last in reported)
        steps = sum(last["step"] for last in reported)
        source = f"by the {steps:,} steps that its trials have trained"
    return TrialSpeed(per_flop, validation / cost.step_flops, source)


def time_left(
    sweep: SweepRecipe, costs: Sequence[TrialCost], runs: int, speed: TrialSpeed, concurrent: int, history: History
) -> SweepTime:
    """The seconds until all of `runs` trials have ended, starts of processes and checkpoints left out.

    Args:
        sweep: whose scheduler may stop trials.
        costs: of the settings that are known, in order; the others count as their mean.
        runs: trials in all.
        speed: of trials.
        concurrent: trials side by side.
        history: what has been done already.
    """
    each = [_seconds(sweep, cost, speed) for cost in costs]
    mean = sum(each) / len(each)
    share = sweep.scheduler.least_reports(sweep.reports) / sweep.reports
    least, most = [], []
    for trial in history.trials.values():
        whole = each[trial.setting] if trial.setting < len(each) else mean
        least.append(whole * max(0.0, share - _done(trial)))
        most.append(whole * (1 - _done(trial)))
    fresh = [*each, *[mean] * runs]  # settings that are not known yet behind those that are
    for number in range(len(least), runs):
        whole = fresh[number // sweep.seeds]
        least.append(whole * share)
        most.append(whole)
    if not any(trial.state == "finished" for trial in history.trials.values()):  # the best one uses its whole budget
        best = min(range(len(least)), key=lambda number: most[number] - least[number] if most[number] else math.inf)
        least[best] = most[best]
    return SweepTime(_side_by_side(least, concurrent), _side_by_side(most, concurrent))


def _seconds(sweep: SweepRecipe, cost: TrialCost, speed: TrialSpeed) -> float:
    """Of a trial that uses its whole budget, with its validations."""
    training = sweep.budget.seconds if cost.flops is None else cost.flops * speed.seconds_per_flop
    assert training is not None, "a budget without steps is one of seconds"
    return training + sweep.reports * speed.validation_seconds * cost.step_flops


def _done(trial: TrialState) -> float:
    return 1.0 if trial.ended else trial.report_number / trial.last_report


def _side_by_side(seconds: Sequence[float], concurrent: int) -> float:
    return max(sum(seconds) / concurrent, max(seconds, default=0.0))
