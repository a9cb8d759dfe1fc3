"""What a sweep would do, in words: its settings, what cannot be run and why, where trials fit, and what they cost."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workflows.console import counted

if TYPE_CHECKING:
    from train.sweep.config import SweepRecipe
    from train.sweep.estimate import Estimate
    from train.sweep.placement import Placement

_MOST = 40  # settings that are listed


def describe(sweep: "SweepRecipe", data: str) -> Iterator[str]:
    """The lines of a dry run.

    Raises:
        UserError: the sweep cannot be run.
    """
    from train.sweep.estimate import Estimator
    from train.sweep.run import prepare

    proposer, plan = prepare(sweep, data)
    placement = _placement(sweep, plan.settings)
    estimator = Estimator(sweep, data, proposer.manifest, proposer.vocabulary)
    estimates = [estimator.estimate(values) for values in plan.settings]
    runs = plan.num_settings * sweep.seeds
    seeds = f", each with {counted(sweep.seeds, 'seed')}: {counted(runs, 'trial')}" if sweep.seeds > 1 else ""
    yield f"{counted(plan.num_settings, 'setting')}{seeds}"
    for number, (values, estimate) in enumerate(zip(plan.settings[:_MOST], estimates, strict=False)):
        shown = ", ".join(f"{key} = {value}" for key, value in values.items())
        yield f"  {number:>3}  {shown}  ({estimate.parameters:,} parameters, {estimate.step_flops:.3g} FLOPs a step)"
    if len(plan.settings) > _MOST:
        yield f"  and {len(plan.settings) - _MOST} more"
    if plan.num_settings > len(plan.settings):
        more = plan.num_settings - len(plan.settings)
        yield f"  {more} more are chosen by {sweep.searcher.name} when trials have reported"
    yield f"{counted(len(plan.impossible), 'setting')} cannot be run" + (":" if plan.impossible else "")
    yield from (f"  {count} x {reason}" for reason, count in sorted(plan.skipped.items()))
    yield str(placement)
    yield from _budget(sweep, estimates, runs, placement)


def _placement(sweep: "SweepRecipe", settings: tuple[dict, ...]) -> "Placement":
    import torch

    from train.ray_session import cores, ray_session
    from train.sweep.placement import Node
    from train.sweep.run import cluster_nodes, find_placement

    if "RAY_ADDRESS" in os.environ:
        with ray_session():
            return find_placement(sweep, settings, cluster_nodes())
    return find_placement(sweep, settings, [Node(cores(), torch.cuda.device_count())])


def _budget(sweep: "SweepRecipe", estimates: list["Estimate"], runs: int, placement: "Placement") -> Iterator[str]:
    budget = sweep.budget
    most = "at most " if sweep.scheduler.name in ("asha", "median_stopping", "hyperband") else ""
    unit = budget.unit.replace("_", " ").replace("train ", "")
    yield f"budget of a trial: {budget.amount:,.6g} {unit}{'' if unit.endswith('s') else 's'}, {sweep.reports} reports"
    if budget.seconds is not None:
        hours = runs * budget.seconds / placement.concurrent / 3600
        yield f"all trials: {most}{hours:,.2f} hours of training, {placement.concurrent} side by side"
        return
    share = runs / len(estimates)  # settings not known yet count as the mean of those that are
    steps = share * sum(estimate.steps or 0 for estimate in estimates)
    characters = share * sum(estimate.characters or 0 for estimate in estimates)
    flops = share * sum(estimate.flops or 0 for estimate in estimates)
    yield f"all trials: {most}{steps:,.0f} steps, {characters:,.3g} characters, {flops:.3g} FLOPs"
