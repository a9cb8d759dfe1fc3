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
