"""What is used of Ray (2.60) that has no documented door: here and nowhere else.

A test of the seam (tests/train/ray/test_internals.py) says which of it is gone in another version, and what to look at.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import ray
from ray._private import ray_constants
from ray._private.ray_logging import stdout_deduplicator
from ray._private.state import state
from ray.train.torch import TorchTrainer

# Ray calls these two a DeveloperAPI and documents their methods, but gives them no public module.
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback

__all__ = ["ControllerCallback", "Reservation", "WorkerGroupCallback", "draining_nodes", "leave_out_datasets", "muted",
           "on_loopback"]  # fmt: skip


def draining_nodes() -> set[str]:
    """The ids of the nodes that are about to be taken away: Ray starts nothing there any more."""
    return set(state.get_draining_nodes())


class Reservation:
    """What Ray has put aside for a run of Ray Train, by node; Ray looks by itself only every 20 seconds.

    Args:
        run_id: of Ray Train's run context.
    """

    def __init__(self, run_id: str) -> None:
        from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
            get_or_create_autoscaling_coordinator,
        )

        self._requester = f"train-{run_id}"
        self._coordinator: Any = get_or_create_autoscaling_coordinator()

    def refresh(self) -> None:
        """Have Ray look again, before it answers what it is asked after this."""
        self._ask()

    def read(self, *, seconds: float) -> dict[str, dict[str, float]]:
        """The resources on each node, seen afresh; raises RayError where Ray does not answer within `seconds`."""
        return ray.get(self._ask(), timeout=seconds)

    def _ask(self) -> Any:
        return self._coordinator.get_reserved_resources.remote(self._requester, recompute=True)


def leave_out_datasets(trainer: TorchTrainer) -> None:
    """Keep Ray from starting an actor for datasets with each group of workers, where `trainer` has none.

    Its process imports Ray and torch just when those of the workers do.
    """
    make = trainer._create_default_callbacks

    def make_others() -> list[Any]:
        return [callback for callback in make() if type(callback).__name__ != "DatasetsCallback"]

    trainer._create_default_callbacks = make_others


@contextlib.contextmanager
def muted(pattern: str) -> Iterator[None]:
    """In the block Ray prints no message that `pattern` is found in.

    RAY_DEDUP_LOGS_SKIP_REGEX does so where it is set when Ray is imported.
    """
    before = stdout_deduplicator.skip_re
    stdout_deduplicator.skip_re = re.compile(pattern)
    try:
        yield
    finally:
        stdout_deduplicator.skip_re = before


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """In the block `ray.init` gives a new cluster the address 127.0.0.1, as it does by itself on macOS.

    Its argument `_node_ip_address` takes no loopback address, and the variable RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER, which
    the processes that are started read, acts on this one only if it is set when Ray is imported.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
