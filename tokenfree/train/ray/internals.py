"""All uses of undocumented parts of Ray, and a check that this version has them.

core/ray_access.py and loopback_node.py use three more, which run before or without this module. `check` covers
these as well. tests/train/ray/test_internals.py reports what to look at in a new version of Ray.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.train.torch import TorchTrainer

from tokenfree.core.ray_access import wrong_version

try:
    from ray import _raylet
    from ray._private import ray_constants, services
    from ray._private.ray_logging import stdout_deduplicator
    from ray._private.state import state

    # Ray calls these two a DeveloperAPI and documents their methods, but gives them no public module.
    from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
except ImportError as error:
    raise wrong_version(error.msg) from error

__all__ = ["ControllerCallback", "Reservation", "WorkerGroupCallback", "check", "draining_nodes",
           "leave_out_datasets", "muted", "on_loopback"]  # fmt: skip

PARTS: Mapping[Any, tuple[str, ...]] = {
    ControllerCallback: (
        "after_controller_start",
        "after_controller_state_update",
        "before_controller_execute_resize_decision",
        "on_controller_start_worker_group",
    ),
    WorkerGroupCallback: (
        "after_worker_group_poll_status",
        "after_worker_group_start",
        "before_worker_group_shutdown",
    ),
    TorchTrainer: ("_create_default_callbacks",),
    ray_constants: ("ENABLE_RAY_CLUSTER", "ENABLE_RAY_CLUSTERS_ENV_VAR"),
    _raylet: ("Config", "GcsClient"),
    services: ("get_node_ip_address",),
    state: ("get_draining_nodes",),
    stdout_deduplicator: ("skip_re",),
}


def check() -> None:
    """Raise JobError, which names the version to install, if Ray lacks a part that is used."""
    lacking = [name for part, names in PARTS.items() for name in names if not hasattr(part, name)]
    if lacking:
        raise wrong_version(f"it has no {', '.join(lacking)}")


def draining_nodes() -> set[str]:
    return set(state.get_draining_nodes())


class Reservation:
    """Resources that Ray has reserved for a run of Ray Train, by node.

    Ray itself updates them every 20 seconds.
    """

    def __init__(self, run_id: str) -> None:
        from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
            get_or_create_autoscaling_coordinator,
        )

        self._requester = f"train-{run_id}"
        self._coordinator: Any = get_or_create_autoscaling_coordinator()

    def read(self, *, seconds: float) -> dict[str, dict[str, float]]:
        """Return the current resources on each node.

        Raise RayError if Ray does not answer within `seconds`.
        """
        return ray.get(self.refresh(), timeout=seconds)

    def refresh(self) -> Any:
        """Make Ray update the reservation before it answers later requests.

        Return the reference of its answer.
        """
        return self._coordinator.get_reserved_resources.remote(self._requester, recompute=True)


def leave_out_datasets(trainer: TorchTrainer) -> None:
    """Keep Ray from starting an actor for datasets, which would import Ray and torch along with the workers."""
    make = trainer._create_default_callbacks

    def make_others() -> list[Any]:
        return [callback for callback in make() if type(callback).__name__ != "DatasetsCallback"]

    trainer._create_default_callbacks = make_others


@contextlib.contextmanager
def muted(pattern: str) -> Iterator[None]:
    """Suppress messages of Ray that match `pattern`.

    RAY_DEDUP_LOGS_SKIP_REGEX works only before Ray is imported.
    """
    previous = stdout_deduplicator.skip_re
    stdout_deduplicator.skip_re = re.compile(pattern)
    try:
        yield
    finally:
        stdout_deduplicator.skip_re = previous


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Make `ray.init` give a new cluster the address 127.0.0.1, which its argument `_node_ip_address` refuses.

    New processes read RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER, but this one does so only when it imports Ray.
    """
    name, previous = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, ray_constants.ENABLE_RAY_CLUSTER
    set_by_user = os.environ.get(name)
    os.environ[name] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = previous
        if set_by_user is None:
            del os.environ[name]
        else:
            os.environ[name] = set_by_user
