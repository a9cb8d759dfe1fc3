"""What a sweep needs before it starts: room on the cluster, and the cost of its trials."""

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
    """A machine of the cluster, with so many CPUs and GPUs as Ray counts them."""

    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Needs:
    """What a trial needs: workers that may be on different machines, each with so many CPUs and GPUs."""

    workers: int
    cpus: float
    gpus: float = 0.0

    def __str__(self) -> str:
        each = f" ({self.workers} workers of {self.cpus:g})" if self.workers > 1 else ""
        return _resources(self.workers * self.cpus, self.workers * self.gpus) + each


@dataclass(frozen=True)
class Placement:
    """How many trials have room side by side; as text, the sum that says so."""

    needs: Needs
    nodes: tuple[Node, ...]
    concurrent: int

    def __str__(self) -> str:
        has = _resources(sum(node.cpus for node in self.nodes), sum(node.gpus for node in self.nodes))
        where = "this machine has" if len(self.nodes) == 1 else f"the {len(self.nodes)} machines have"
        return f"a trial needs {self.needs}; {where} {has}: {_counted(self.concurrent, 'trial')} side by side"


def place(needs: Needs, nodes: Sequence[Node], concurrent: int | None = None) -> Placement:
    """Return the room for trials with `needs` on `nodes`, at most `concurrent` of them side by side.

    Raises:
        UserError: not even one fits; the message shows the sum.
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
    """Return the room for trials of these settings on `nodes`.

    Raises:
        UserError: a trial can never fit.
    """
    gpus = sweep.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if any(node.gpus for node in nodes) else 0.0
    threads = [sweep.recipe(values).train.threads or 1 for values in settings]
    return place(Needs(sweep.workers, max(threads), gpus), nodes, sweep.concurrent)


@dataclass(frozen=True)
class TrialCost:
    """What a whole trial comes to, by the shapes of its model.

    Attributes:
        parameters: number of parameters of the encoder.
        step_flops: floating point operations of a step, forward and backward.
        step_characters: characters of text in a step.
        steps: number of steps that the budget is worth; None for a budget in seconds.
    """

    parameters: int
    step_flops: float
    step_characters: float
    steps: int | None


def trial_costs(sweep: SweepRecipe, subject: Subject, settings: Sequence[Values]) -> list[TrialCost]:
    """Return the cost of a trial of each of the settings, by one batch of `subject`; nothing is trained.

    Raises:
        UserError: the values make no recipe, or the data cannot be read.
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
