"""What a sweep needs before it starts: room on the cluster, the cost of its trials, and time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokenfree.core.errors import UserError
from tokenfree.train.batches.base import Arrays
from tokenfree.train.loop.step import Meter
from tokenfree.train.sweep.history import History, TrialState
from tokenfree.train.sweep.recipe import Asha, MedianStopping, SweepRecipe, Values
from tokenfree.train.sweep.subjects import Subject
from tokenfree.train.sweep.trial import TIMED_STEPS, recipe_for_timing, seconds_of_step


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, with so many CPUs and GPUs as Ray counts them."""

    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Needs:
    """What a trial needs: so many workers, each on one machine; they may be on different ones.

    Attributes:
        workers: of the trial.
        cpus: of each worker.
        gpus: of each worker; a part of one where several workers share it.
    """

    workers: int
    cpus: float
    gpus: float = 0.0

    def __str__(self) -> str:
        parts = [_counted(self.workers * self.cpus, "CPU")]
        if self.gpus:
            parts.append(_counted(self.workers * self.gpus, "GPU"))
        each = f" ({self.workers} workers of {self.cpus:g})" if self.workers > 1 else ""
        return " and ".join(parts) + each


@dataclass(frozen=True)
class Placement:
    """How many workers and trials have room; as text, the sum that says so.

    Attributes:
        needs: of a trial.
        nodes: the machines.
        slots: workers that have room.
        concurrent: trials side by side.
    """

    needs: Needs
    nodes: tuple[Node, ...]
    slots: int
    concurrent: int

    def __str__(self) -> str:
        where = "this machine" if len(self.nodes) == 1 else f"the {len(self.nodes)} machines"
        has = _counted(sum(node.cpus for node in self.nodes), "CPU")
        if any(node.gpus for node in self.nodes):
            has += " and " + _counted(sum(node.gpus for node in self.nodes), "GPU")
        verb = "has" if len(self.nodes) == 1 else "have"
        return f"a trial needs {self.needs}; {where} {verb} {has}: {_counted(self.concurrent, 'trial')} side by side"


def place(needs: Needs, nodes: Sequence[Node], concurrent: int | None = None) -> Placement:
    """Room for trials with `needs` on `nodes`, at most `concurrent` of them side by side.

    Raises:
        UserError: not even one fits; the message shows the sum.
    """
    slots = sum(_workers_on(node, needs) for node in nodes)
    fitting = slots // needs.workers
    if fitting == 0:
        cpus, gpus = max(node.cpus for node in nodes), max(node.gpus for node in nodes)
        largest = _counted(cpus, "CPU") + (" and " + _counted(gpus, "GPU") if needs.gpus else "")
        room = _counted(slots, "worker")
        together = f", and all {len(nodes)} machines have room for {room}" if len(nodes) > 1 else ""
        raise UserError(
            f"a trial needs {needs}; the largest machine of the cluster has {largest}{together}: lower workers, "
            "train.threads or gpus_per_worker, or add machines"
        )
    return Placement(needs, tuple(nodes), slots, min(fitting, concurrent or fitting))


def _workers_on(node: Node, needs: Needs) -> int:
    room = int(node.cpus / needs.cpus + 1e-9)
    return min(room, int(node.gpus / needs.gpus + 1e-9)) if needs.gpus else room


def cluster_nodes() -> list[Node]:
    """The machines of the cluster that Ray is connected to."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in alive]


def find_placement(sweep: SweepRecipe, settings: Sequence[Values], nodes: Sequence[Node]) -> Placement:
    """Room for trials of these settings on `nodes`.

    Raises:
        UserError: a trial can never fit.
    """
    gpus = sweep.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if any(node.gpus for node in nodes) else 0.0
    threads = [sweep.recipe(values).train.threads or 1 for values in settings]
    return place(Needs(sweep.workers, max(threads), gpus), nodes, sweep.concurrent)


def _counted(number: float, noun: str) -> str:
    return f"{number:g} {noun}" + ("" if number == 1 else "s")


@dataclass(frozen=True)
class TrialCost:
    """What a whole trial comes to. Where the budget is in seconds, its steps and all that follows from them are None.

    Attributes:
        parameters: of the encoder.
        step_flops: floating point operations of a step, forward and backward.
        step_characters: characters of text in a step.
        steps: that the budget is worth.
    """

    parameters: int
    step_flops: float
    step_characters: float
    steps: int | None

    @property
    def flops(self) -> float | None:
        """Floating point operations of the whole trial, forward and backward."""
        return None if self.steps is None else self.steps * self.step_flops

    @property
    def characters(self) -> float | None:
        """Characters of text in the whole trial."""
        return None if self.steps is None else self.steps * self.step_characters


class CostEstimator:
    """Estimates trials on `subject` from the shapes of their models and one batch."""

    def __init__(self, sweep: SweepRecipe, subject: Subject) -> None:
        self._sweep, self._subject = sweep, subject
        self._arrays: Arrays | None = None

    def estimate(self, values: Values) -> TrialCost:
        """The cost of the trial with these values; nothing is trained.

        Raises:
            UserError: the values make no recipe, or the data cannot be read.
        """
        recipe = self._sweep.recipe(values)
        arrays = self._arrays = self._subject.batch(recipe) if self._arrays is None else self._arrays
        with torch.device("meta"):
            task = self._subject.build(recipe)
        meter = Meter(task.encoder, task.head, device=torch.device("cpu"), precision=recipe.train.precision)
        share = recipe.train.global_batch / len(arrays["sample_ids"])
        characters = float(arrays["num_characters"].sum()) * share
        flops = meter.flops(arrays) * share
        parameters = sum(parameter.numel() for parameter in task.encoder.parameters())
        return TrialCost(parameters, flops, characters, self._steps(flops, characters))

    def _steps(self, flops: float, characters: float) -> int | None:
        budget = self._sweep.budget
        if budget.seconds is not None:
            return None
        steps = budget.steps or (budget.flops or 0) / flops or (budget.characters or 0) / characters
        return max(1, round(steps))


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
    share = least_reports(sweep) / sweep.reports
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


def least_reports(sweep: SweepRecipe) -> int:
    """Return how many reports a trial makes that is stopped as early as its scheduler allows."""
    early = isinstance(sweep.scheduler, Asha | MedianStopping)
    return min(sweep.scheduler.grace, sweep.reports) if early else sweep.reports


def _seconds(sweep: SweepRecipe, cost: TrialCost, speed: TrialSpeed) -> float:
    """Of a trial that uses its whole budget, with its validations."""
    training = sweep.budget.seconds if cost.flops is None else cost.flops * speed.seconds_per_flop
    assert training is not None, "a budget without steps is one of seconds"
    return training + sweep.reports * speed.validation_seconds * cost.step_flops


def _done(trial: TrialState) -> float:
    return 1.0 if trial.ended else trial.report_number / trial.last_report


def _side_by_side(seconds: Sequence[float], concurrent: int) -> float:
    return max(sum(seconds) / concurrent, max(seconds, default=0.0))
