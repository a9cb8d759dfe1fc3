"""Frees the resources of workers whose controller died, so that others can be started in their place."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, get_current_placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenfree.train.ray.internals import ControllerCallback, WorkerGroupCallback

_INTERVAL = 0.5  # seconds between two looks at the controller


class CleanerCallback(ControllerCallback, WorkerGroupCallback):
    """Starts a `Cleaner` beside Ray Train's controller, in which it lives, and tells it of the workers.

    Ray has a cleaner of its own, which asks the State API whether the controller lives. That needs a dashboard, of
    140 MB, and beside a second cluster on the machine it was seen to destroy a healthy group of workers. A cluster of
    the command's own names no State API in its environment (see train/ray/environment.py), so Ray's cleaner gives up.
    """

    _cleaner: Any = None

    def after_controller_start(self, train_run_context: Any) -> None:
        """Start it where the controller is."""
        context = ray.get_runtime_context()
        here = NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False)
        actor_class: Any = ray.remote(num_cpus=0)(Cleaner)
        self._cleaner = actor_class.options(lifetime="detached", scheduling_strategy=here).remote(context.current_actor)

    def after_worker_group_start(self, worker_group: Any) -> None:
        """Tell it what to free."""
        self._cleaner.guard.remote(worker_group.execute_single(0, get_current_placement_group))

    async def before_controller_shutdown(self) -> None:
        """End it."""
        ray.kill(self._cleaner)


class Cleaner:
    """An actor that outlives the controller; it then removes the placement group of the workers, and ends."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self._group: PlacementGroup | None = None
        threading.Thread(target=self._watch, name="cleaner", daemon=True).start()

    def guard(self, group: PlacementGroup) -> None:
        """What to remove, in place of what there was before."""
        self._group = group

    def _watch(self) -> None:
        myself = ray.get_runtime_context().current_actor
        ended = threading.Event()
        while not ended.wait(_INTERVAL):
            try:
                ray.get(self._controller.__ray_ready__.remote(), timeout=_INTERVAL)
            except GetTimeoutError:
                continue  # busy, not dead
            except RayActorError:
                ended.set()
        with contextlib.suppress(RayError):  # the cluster is going down
            if self._group is not None:
                remove_placement_group(self._group)
            ray.kill(myself)
