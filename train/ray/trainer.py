"""Ray Train's trainer as tokenfree needs it: which failures are tried again, where, and who cleans up.

Here, and only here, parts inside Ray Train (2.60) are replaced; tests say whether they still take their places.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.train import FailureConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import BackendSetupCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import WorkerCallback
from ray.train.v2._internal.execution.context import get_train_context
from ray.train.v2._internal.execution.controller.placement_group_cleaner import PlacementGroupCleaner
from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenfree.train.loop.stopping import Stop
from tokenfree.train.ray.errors import own_errors
from tokenfree.train.ray.scaling import ElasticPolicy, FixedPolicy, interface_of
from tokenfree.train.worker.worker import Stopped

notice = Stop()  # of this process, where it is a worker: asked by SIGTERM


class Trainer(TorchTrainer):
    """TorchTrainer that gives up at once on an error of ours, whose worker groups cannot be taken for orphans, and
    which plans without nodes that do not answer.

    Args:
        train_loop: what every worker runs.
        channel: of the run (see train/ray/channel.py); None: there is none, and the number of workers is fixed.
        settings: those of TorchTrainer.
    """

    def __init__(self, train_loop: Any, channel: Any, **settings: Any) -> None:
        super().__init__(train_loop, **settings)
        self._channel = channel

    def _create_default_callbacks(self) -> list[Any]:
        ours = {
            PlacementGroupCleanerCallback: lambda callback: CleanerCallback(0.5),
            BackendSetupCallback: lambda callback: BackendCallback(self.backend_config),
        }
        callbacks = super()._create_default_callbacks()
        return [ours.get(type(callback), lambda same: same)(callback) for callback in callbacks] + [ProcessCallback()]

    def _initialize_and_run_controller(self, **arguments: Any) -> Any:
        scaling = self.scaling_config
        arguments["failure_policy"] = FailurePolicy(self.run_config.failure_config or FailureConfig())
        arguments["scaling_policy"] = (
            ElasticPolicy(scaling, self._channel) if scaling.elasticity_enabled else FixedPolicy(scaling)
        )
        return super()._initialize_and_run_controller(**arguments)

    def _register_sigint_handler(self, controller: Any) -> None:
        """None: Ctrl-C raises KeyboardInterrupt here as everywhere, and closing the session ends the workers."""


def coming_end() -> str | None:
    """Says so where Ray drains a node of this worker's group, as autoscalers do before they take it away.

    Ray's own `get_preemption_info` waits for all workers to ask.
    """
    info = get_train_context().preemption_context.preemption_info
    return None if info is None else f"the coming end of node {', '.join(info.preempted_node_ids)}"


class BackendCallback(BackendSetupCallback):
    """Ends the workers of a group at once, by killing them.

    Ray asks each to take leave of the others first, and waits up to 35 seconds for those of a node that is gone.
    """

    def before_execution_group_shutdown(self, execution_group: Any) -> None:
        """Kill the workers; what they had to write is written, or belongs to a step that is done again."""
        for worker in execution_group.get_workers():
            ray.kill(worker.actor)


class ProcessCallback(WorkerCallback):
    """Prepares the process of a worker."""

    def after_init_train_context(self) -> None:
        """Catch the notice of an end, and choose the network interface of Gloo."""
        # The notice that this machine goes away. Training is in another thread, which can catch no signals.
        signal.signal(signal.SIGTERM, lambda number, frame: notice.ask("SIGTERM", goes_on=True))
        # Gloo takes the address of the host name, which on many systems is one that other machines cannot reach.
        interface = interface_of(ray.util.get_node_ip_address())
        if interface is not None and len(ray.nodes()) > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


class CleanerCallback(PlacementGroupCleanerCallback):
    """Starts our cleaner in place of Ray's."""

    def after_controller_start(self, train_run_context: Any) -> None:
        """As Ray's, but for the class and for the handle of the controller in place of its id."""
        context = ray.get_runtime_context()
        self._controller_actor_id = context.get_actor_id()
        actor_class: Any = ray.remote(num_cpus=0)(Cleaner)
        here = NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False)
        cleaner = actor_class.options(lifetime="detached", scheduling_strategy=here).remote(
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
        """Whether the workers are started again, and whether that counts against `train.max_restarts`."""
        if isinstance(training_failed_error, WorkerGroupError):
            failures = training_failed_error.worker_failures
            if own_errors(failures):
                return FailureDecision.RAISE
            if any(isinstance(error, Stopped) for error in failures.values()):
                return FailureDecision.RETRY  # which costs nothing: a checkpoint was written
        return super().make_decision(training_failed_error)
