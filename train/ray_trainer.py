"""Ray Train's trainer as tokenfree needs it: which failures are tried again, and who cleans up after a controller.

Here, and only here, parts inside Ray Train (2.60) are replaced; tests say whether they still take their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.train import FailureConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.exceptions import RayTrainError
from ray.train.v2._internal.execution.controller.placement_group_cleaner import PlacementGroupCleaner
from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError

from preprocess.errors import JobError


class LostPeer(RuntimeError):
    """A collective operation failed because another worker is gone: no fault of this one's."""


class WorkerFailure(JobError):
    """An error that nobody expected in a worker, with its traceback."""

    def __init__(self, summary: str, details: str) -> None:
        super().__init__(summary, details)
        self.summary, self.details = summary, details

    def __str__(self) -> str:
        return self.summary


def own_errors(failures: Mapping[int, Exception]) -> dict[int, Exception]:
    """The errors that workers raised by themselves, by rank: neither their loss nor the consequence of another's."""
    lost = (LostPeer, RayError, RayTrainError)
    return {rank: error for rank, error in sorted(failures.items()) if not isinstance(error, lost)}


class Trainer(TorchTrainer):
    """TorchTrainer that gives up at once on an error of ours, and whose worker groups cannot be taken for orphans."""

    def _create_default_callbacks(self) -> list[Any]:
        return [
            CleanerCallback(0.5) if isinstance(callback, PlacementGroupCleanerCallback) else callback
            for callback in super()._create_default_callbacks()
        ]

    def _initialize_and_run_controller(self, **arguments: Any) -> Any:
        arguments["failure_policy"] = FailurePolicy(self.run_config.failure_config or FailureConfig())
        return super()._initialize_and_run_controller(**arguments)

    def _register_sigint_handler(self, controller: Any) -> None:
        """None: Ctrl-C raises KeyboardInterrupt here as everywhere, and closing the session ends the workers."""


class CleanerCallback(PlacementGroupCleanerCallback):
    """Starts our cleaner in place of Ray's."""

    def after_controller_start(self, train_run_context: Any) -> None:
        context = ray.get_runtime_context()
        self._controller_actor_id = context.get_actor_id()
        actor_class: Any = ray.remote(num_cpus=0)(Cleaner)
        cleaner = actor_class.options(lifetime="detached").remote(
            context.current_actor, self._check_interval_s, self._stop_timeout
        )
        cleaner.start_monitoring.remote()
        self._cleaner = cleaner


class Cleaner(PlacementGroupCleaner):
    """Frees the workers' resources when their controller dies, which it asks of the controller itself.

    Ray's own asks the State API, which needs a dashboard and looks for *a* cluster on the machine: without a dashboard
    it warns every second, and beside a second cluster it was seen to destroy a healthy group of workers.
    """

    def __init__(self, controller: Any, check_interval_s: float, stop_timeout: float) -> None:
        super().__init__("", check_interval_s, 0.0, stop_timeout)
        self._controller = controller

    def _monitor_loop(self) -> None:
        group = None
        while not self._stop_event.wait(self._check_interval_s):
            while not self._pg_queue.empty():
                group = self._pg_queue.get()
            try:
                ray.get(self._controller.__ray_ready__.remote(), timeout=self._check_interval_s)
            except GetTimeoutError:
                continue  # busy, not dead
            except RayActorError:
                self._cleanup_placement_group(group)
                break
        self._exit()


class FailurePolicy(DefaultFailurePolicy):
    """Starts workers again when some were lost, not when one of them raised an error that would come again."""

    def make_decision(self, training_failed_error: TrainingFailedError) -> FailureDecision:
        if isinstance(training_failed_error, WorkerGroupError) and own_errors(training_failed_error.worker_failures):
            return FailureDecision.RAISE
        return super().make_decision(training_failed_error)
