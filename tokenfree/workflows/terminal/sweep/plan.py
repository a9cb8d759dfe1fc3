"""What a sweep would do, in words: its settings, what cannot be run and why, where trials fit, and what they cost."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokenfree.workflows.terminal.stage_line import counted

if TYPE_CHECKING:
    from tokenfree.train.mixture.mixture import Data
    from tokenfree.train.sweep.control.history import History
    from tokenfree.train.sweep.control.placement import Placement
    from tokenfree.train.sweep.control.trial_cost import TrialCost
    from tokenfree.train.sweep.space.recipe import SweepRecipe
    from tokenfree.train.sweep.subjects.finetuning import TaskInput
    from tokenfree.train.sweep.trials.sweep_time import SweepTime, TrialSpeed

_MOST = 40  # settings that are listed


def describe(sweep: "SweepRecipe", data: "Data | TaskInput", output: str) -> Iterator[str]:
    """The lines of a dry run; for the hours some steps are trained, or a sweep in `output` is asked for its speed.

    Raises:
        UserError: the sweep cannot be run.
    """
    from tokenfree.train.sweep.control.trial_cost import CostEstimator
    from tokenfree.train.sweep.run import prepare
    from tokenfree.train.sweep.trials.sweep_time import measure, time_left

    proposer, plan = prepare(sweep, data, output)
    sweep = proposer.sweep
    placement = _placement(sweep, plan.settings)
    estimator = CostEstimator(sweep, proposer.subject)
    costs = [estimator.estimate(values) for values in plan.settings]
    runs = plan.num_settings * sweep.seeds
    seeds = f", each with {counted(sweep.seeds, 'seed')}: {counted(runs, 'trial')}" if sweep.seeds > 1 else ""
    yield f"{counted(plan.num_settings, 'setting')}{seeds}"
    for number, (values, cost) in enumerate(zip(plan.settings[:_MOST], costs, strict=False)):
        shown = ", ".join(f"{key} = {value}" for key, value in values.items())
        yield f"  {number:>3}  {shown}  ({cost.parameters:,} parameters, {cost.step_flops:.3g} FLOPs a step)"
    if len(plan.settings) > _MOST:
        yield f"  and {len(plan.settings) - _MOST} more"
    if plan.num_settings > len(plan.settings):
        more = plan.num_settings - len(plan.settings)
        yield f"  {more} more are chosen by {sweep.searcher.name} when trials have reported"
    yield f"{counted(len(plan.impossible), 'setting')} cannot be run" + (":" if plan.impossible else "")
    yield from (f"  {count} x {reason}" for reason, count in sorted(plan.skipped.items()))
    yield str(placement)
    yield from _budget(sweep, costs, runs)
    history = _begun(sweep, plan.settings, output)
    speed = measure(sweep, plan.settings[0], costs[0], proposer.subject, placement, history)
    left = time_left(sweep, costs, runs, speed, placement.concurrent, history)
    yield _hours(left, speed, placement.concurrent, begun=bool(history.trials))


def _placement(sweep: "SweepRecipe", settings: tuple[dict, ...]) -> "Placement":
    import torch

    from tokenfree.train.ray.session import cores, ray_session
    from tokenfree.train.sweep.control.placement import Node, cluster_nodes, find_placement

    if "RAY_ADDRESS" in os.environ:
        with ray_session():
            return find_placement(sweep, settings, cluster_nodes())
    return find_placement(sweep, settings, [Node(cores(), torch.cuda.device_count())])


def _begun(sweep: "SweepRecipe", settings: tuple[dict, ...], output: str) -> "History":
    """What is known of this sweep in its folder; nothing where that holds another one, or none."""
    from tokenfree.train.sweep.control.history import History
    from tokenfree.train.sweep.control.journal import read_history

    none = History(sweep.seeds, sweep.reports, sweep.quality)
    if "://" in output:
        return none
    found = read_history(Path(output), seeds=sweep.seeds, reports=sweep.reports, target=sweep.quality)
    both = min(len(found.proposed), len(settings))
    return found if found.proposed[:both] == settings[:both] else none


def _hours(left: "SweepTime", speed: "TrialSpeed", concurrent: int, *, begun: bool) -> str:
    least, most = _time(left.least), _time(left.most)
    time = f"about {most}" if least == most else f"{least} to {most}"
    side = f"{concurrent} trials side by side" if concurrent > 1 else "one trial after another"
    return f"time{' left' if begun else ''}: {time} on this machine, {side}, validations included ({speed.source})"


def _time(seconds: float) -> str:
    if seconds < 60:
        return counted(round(seconds), "second")
    return counted(round(seconds / 60), "minute") if seconds < 3600 else f"{seconds / 3600:,.1f} hours"


def _budget(sweep: "SweepRecipe", costs: list["TrialCost"], runs: int) -> Iterator[str]:
    budget = sweep.budget
    most = "at most " if sweep.scheduler.stops_early() else ""
    unit = budget.unit.replace("_", " ").replace("train ", "")
    yield f"budget of a trial: {budget.amount:,.6g} {unit}{'' if unit.endswith('s') else 's'}, {sweep.reports} reports"
    if budget.seconds is not None:
        return
    share = runs / len(costs)  # settings not known yet count as the mean of those that are
    steps = share * sum(cost.steps or 0 for cost in costs)
    characters = share * sum(cost.characters or 0 for cost in costs)
    flops = share * sum(cost.flops or 0 for cost in costs)
    yield f"all trials: {most}{steps:,.0f} steps, {characters:,.3g} characters, {flops:.3g} FLOPs"
