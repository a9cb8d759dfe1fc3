"""Where the trials of a sweep run: what each needs, and how many fit on the cluster at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenfree.core.errors import UserError
from tokenfree.train.sweep.recipe import SweepRecipe, Values


@dataclass(frozen=True)
class Placement:
    """Resources of a trial, by Ray's names, and the number of trials that run at once."""

    needs: Mapping[str, float]
    concurrent: int


def cluster_nodes() -> list[Mapping[str, float]]:
    """Return the resources of each machine of the cluster that Ray is connected to, by Ray's names."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def find_placement(sweep: SweepRecipe, settings: Sequence[Values], nodes: Sequence[Mapping[str, float]]) -> Placement:
    """Return how many trials of these settings fit on `nodes` at once. Raises UserError if not even one fits."""
    gpus = sweep.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if any(node.get("GPU") for node in nodes) else 0.0
    needs = {"CPU": float(max(sweep.recipe(values).train.threads or 1 for values in settings))}
    needs |= {"GPU": gpus} if gpus else {}
    fitting = sum(min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in needs.items()) for node in nodes)
    if fitting == 0:
        told = " and ".join(f"{amount:g} {name}" for name, amount in needs.items())
        raise UserError(
            f"a trial needs {told}: no machine of the cluster has as much. Lower train.threads or gpus_per_worker, or "
            "add machines."
        )
    return Placement(needs, min(fitting, sweep.concurrent or fitting))
