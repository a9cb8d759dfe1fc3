"""The workers of a trial with several workers: one run of Ray Train that is reused for all trials.

Its start takes as long as many trials do, so the workers stay. Worker 0 takes commands from a queue and puts its
answers into another one.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import ray.train
from ray.train import FailureConfig, ScalingConfig, TrainingFailedError
from ray.train.torch import TorchTrainer, get_device
from ray.util.queue import Empty, Queue

from tokenfree.core.errors import JobError
from tokenfree.train.loop.parallel import broadcast
from tokenfree.train.ray.callbacks import unwrap
from tokenfree.train.ray.cluster import ended_where_cut_off, ray_environment
from tokenfree.train.ray.driver import make_trainer
from tokenfree.train.sweep.trial import TrialSegment, TrialSession

_PATIENCE = 7 * 24 * 3600  # seconds that idle workers wait for the next trial


class WorkerGroup:
    """Workers under Ray Train that another process controls.

    Args:
        workers: Number of workers.
        cpus, gpus: CPUs and GPUs per worker.
        storage: Folder for the files of Ray Train.
        name: Name of the run of Ray Train.
    """

    def __init__(self, *, workers: int, cpus: float, gpus: float, storage: str, name: str) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(ray_environment())
        self._commands, self._answers = (Queue(actor_options={"num_cpus": 0}) for _ in range(2))
        self._failure: BaseException | None = None
        trainer = make_trainer(
            _serve,
            {"queues": (self._commands, self._answers)},
            ScalingConfig(
                num_workers=workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": cpus, **({"GPU": gpus} if gpus else {})},
            ),
            name=name,
            failures=FailureConfig(max_failures=0),
            timeout_s=_PATIENCE,
            storage_path=storage,
        )
        self._thread = threading.Thread(target=self._run, args=(trainer,), name="worker group", daemon=True)
        self._thread.start()

    def begin(self, segment: TrialSegment) -> None:
        """Switch the workers to a trial.

        Raises:
            JobError: A worker failed, or the workers ended.
        """
        self._ask(segment)

    def advance(self) -> dict[str, Any]:
        """Return the next report of the trial, as `TrialSession.advance` does.

        Raises:
            JobError: A worker failed, with the error of the first one, or the workers ended.
        """
        return self._ask("advance")

    def close(self) -> None:
        """End the workers."""
        if self._thread.is_alive():
            self._commands.put("end")
            self._thread.join(timeout=10)
        self._stack.close()

    def _ask(self, command: Any) -> Any:
        self._commands.put(command)
        while self._thread.is_alive():
            with contextlib.suppress(Empty):
                return self._answers.get(timeout=0.2)
        raise self._failure or JobError("the workers of the trial ended by themselves")

    def _run(self, trainer: TorchTrainer) -> None:
        try:
            trainer.fit()
        except TrainingFailedError as error:
            self._failure = _explain(error)


def _explain(error: TrainingFailedError) -> JobError:
    """Return the error that the sweep reports after the workers failed."""
    cause = unwrap(error)
    if cause.error is None:
        return JobError("a worker of the trial was lost; look for a lack of memory")
    if cause.rank is None:
        return JobError(f"Ray could not run the workers of the trial: {cause.first_line}")
    return JobError(f"worker {cause.rank}: {type(cause.error).__name__}: {cause.error}")


def _serve(config: dict[str, Any]) -> None:
    """Run the trials in one worker."""
    with ended_where_cut_off():
        _turn_to_trials(*config["queues"])


def _turn_to_trials(commands: Queue, answers: Queue) -> None:
    """Run one session after another, as the commands to worker 0 request."""
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    session: TrialSession | None = None
    while True:
        command: Any = broadcast(commands.get() if rank == 0 else None)
        answer = None
        if session is not None and command != "advance":
            session.close()
        if command == "end":
            return
        if command == "advance":
            assert session is not None, "workers begin before they advance"
            answer = session.advance()
        else:
            session = TrialSession(command, rank=rank, world_size=world_size, device=str(get_device()))
            session.open()
        if rank == 0:
            answers.put(answer)
