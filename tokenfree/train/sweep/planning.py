"""What a sweep needs before it starts: resources of the cluster for its trials, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokenfree.core.errors import UserError
from tokenfree.train.loop.step import Meter
from tokenfree.train.sweep.recipe import SweepRecipe, Values
from tokenfree.train.sweep.subjects import Subject


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, with its numbers of CPUs and GPUs as Ray counts them."""

    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Needs:
    """Resources of a trial: workers that may be on different machines, and the CPUs and GPUs of each."""

    workers: int
    cpus: float
    gpus: float = 0.0

    def __str__(self) -> str:
        each = f" ({self.workers} workers of {self.cpus:g})" if self.workers > 1 else ""
        return _resources(self.workers * self.cpus, self.workers * self.gpus) + each


@dataclass(frozen=True)
class Placement:
    """Number of trials that fit on the cluster at once. Its text shows the arithmetic."""

    needs: Needs
    nodes: tuple[Node, ...]
    concurrent: int

    def __str__(self) -> str:
        has = _resources(sum(node.cpus for node in self.nodes), sum(node.gpus for node in self.nodes))
        where = "this machine has" if len(self.nodes) == 1 else f"the {len(self.nodes)} machines have"
        return f"a trial needs {self.needs}; {where} {has}: {_counted(self.concurrent, 'trial')} side by side"


def place(needs: Needs, nodes: Sequence[Node], concurrent: int | None = None) -> Placement:
    """Return how many trials with `needs` fit on `nodes` at once, up to `concurrent`.

    Raises:
        UserError: Not even one trial fits. The message shows the arithmetic.
    """
    slots = sum(_workers_on(node, needs) for node in nodes)
    fitting = slots // needs.workers
    if fitting == 0:
        cpus, gpus = max(node.cpus for node in nodes), max(node.gpus for node in nodes)
        largest = _resources(cpus, gpus, with_gpus=needs.gpus > 0)
        room = f", and all {len(nodes)} machines have room for {_counted(slots, 'worker')}" if len(nodes) > 1 else ""
        raise UserError(
            f"a trial needs {needs}; the largest machine of the cluster has {largest}{room}: lower workers, "
            "train.threads or gpus_per_worker, or add machines"
        )
    return Placement(needs, tuple(nodes), min(fitting, concurrent or fitting))


def _workers_on(node: Node, needs: Needs) -> int:
    room = int(node.cpus / needs.cpus + 1e-9)
    return min(room, int(node.gpus / needs.gpus + 1e-9)) if needs.gpus else room


def _resources(cpus: float, gpus: float, *, with_gpus: bool = False) -> str:
    return _counted(cpus, "CPU") + (f" and {_counted(gpus, 'GPU')}" if gpus or with_gpus else "")


def _counted(number: float, noun: str) -> str:
    return f"{number:g} {noun}" + ("" if number == 1 else "s")


def cluster_nodes() -> list[Node]:
    """Return the machines of the cluster that Ray is connected to."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in alive]


def find_placement(sweep: SweepRecipe, settings: Sequence[Values], nodes: Sequence[Node]) -> Placement:
    """Return how many trials of these settings fit on `nodes` at once.

    Raises:
        UserError: A trial can never fit.
    """
    gpus = sweep.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if any(node.gpus for node in nodes) else 0.0
    threads = [sweep.recipe(values).train.threads or 1 for values in settings]
    return place(Needs(sweep.workers, max(threads), gpus), nodes, sweep.concurrent)


@dataclass(frozen=True)
class TrialCost:
    """Cost of a whole trial, computed from the shapes of its model.

    Attributes:
        parameters: Number of parameters of the encoder.
        step_flops: Floating-point operations of a step, forward and backward.
        step_characters: Characters of text in a step.
        steps: Number of steps that the budget allows; None for a budget in seconds.
    """

    parameters: int
    step_flops: float
    step_characters: float
    steps: int | None


def trial_costs(sweep: SweepRecipe, subject: Subject, settings: Sequence[Values]) -> list[TrialCost]:
    """Return the cost of a trial of each setting, estimated from one batch of `subject` without training.

    Raises:
        UserError: The values do not make a valid recipe, or the data cannot be read.
    """
    arrays = subject.batch(sweep.recipe(settings[0]))
    found = []
    for recipe in map(sweep.recipe, settings):
        with torch.device("meta"):
            task = subject.build(recipe)
        meter = Meter(task.encoder, task.head, device=torch.device("cpu"), precision=recipe.train.precision)
        share = recipe.train.global_batch / len(arrays["sample_ids"])
        parameters = sum(parameter.numel() for parameter in task.encoder.parameters())
        step = {"step": 1.0, "flops": meter.flops(arrays) * share}
        step["characters"] = float(arrays["num_characters"].sum()) * share
        steps = None if sweep.budget.seconds is not None else sweep.budget.num_steps(step[sweep.budget.unit])
        found.append(TrialCost(parameters, step["flops"], step["characters"], steps))
    return found
