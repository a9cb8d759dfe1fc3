"""What a sweep would do, in words: its settings, what cannot be run and why, where trials fit, and what they cost."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenfree.workflows.terminal.stage_line import counted

if TYPE_CHECKING:
    from tokenfree.train.sweep.control.placement import Placement
    from tokenfree.train.sweep.control.trial_cost import TrialCost
    from tokenfree.train.sweep.space.recipe import SweepRecipe

_MOST = 40  # settings that are listed


def describe(sweep: "SweepRecipe", data: str) -> Iterator[str]:
    """The lines of a dry run.

    Raises:
        UserError: the sweep cannot be run.
    """
    from tokenfree.train.sweep.control.trial_cost import CostEstimator
    from tokenfree.train.sweep.run import prepare

    proposer, plan = prepare(sweep, data)
    placement = _placement(sweep, plan.settings)
    estimator = CostEstimator(sweep, data, proposer.manifest, proposer.vocabulary)
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
    yield from _budget(sweep, costs, runs, placement)


def _placement(sweep: "SweepRecipe", settings: tuple[dict, ...]) -> "Placement":
    import torch

    from tokenfree.train.ray.session import cores, ray_session
    from tokenfree.train.sweep.control.placement import Node
    from tokenfree.train.sweep.run import cluster_nodes, find_placement

    if "RAY_ADDRESS" in os.environ:
        with ray_session():
            return find_placement(sweep, settings, cluster_nodes())
    return find_placement(sweep, settings, [Node(cores(), torch.cuda.device_count())])


def _budget(sweep: "SweepRecipe", costs: list["TrialCost"], runs: int, placement: "Placement") -> Iterator[str]:
    budget = sweep.budget
    most = "at most " if sweep.scheduler.stops_early() else ""
    unit = budget.unit.replace("_", " ").replace("train ", "")
    yield f"budget of a trial: {budget.amount:,.6g} {unit}{'' if unit.endswith('s') else 's'}, {sweep.reports} reports"
    if budget.seconds is not None:
        hours = runs * budget.seconds / placement.concurrent / 3600
        yield f"all trials: {most}{hours:,.2f} hours of training, {placement.concurrent} side by side"
        return
    share = runs / len(costs)  # settings not known yet count as the mean of those that are
    steps = share * sum(cost.steps or 0 for cost in costs)
    characters = share * sum(cost.characters or 0 for cost in costs)
    flops = share * sum(cost.flops or 0 for cost in costs)
    yield f"all trials: {most}{steps:,.0f} steps, {characters:,.3g} characters, {flops:.3g} FLOPs"
