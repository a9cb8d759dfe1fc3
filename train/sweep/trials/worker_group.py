"""The workers of a trial that has several: one run of Ray Train, kept for trial after trial and told what to do.

Its start takes as long as many a trial, so the workers stay. Worker 0 asks a mailbox for commands and answers there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import ray
import ray.train
import torch.distributed as dist
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, get_device
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError

from preprocess.errors import JobError
from train.ray_trainer import Trainer, own_errors
from train.sweep.session import Leg, Session

_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
}
_PATIENCE = 7 * 24 * 3600  # seconds that idle workers wait for the next trial


class Mailbox:
    """Commands from the trial to its worker 0, and the answers."""

    def __init__(self) -> None:
        self._commands: asyncio.Queue[Any] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def tell(self, command: Any) -> None:
        """Leave a command."""
        await self._commands.put(command)

    async def command(self) -> Any:
        """The next command."""
        return await self._commands.get()

    async def reply(self, answer: Any) -> None:
        """Leave an answer."""
        await self._answers.put(answer)

    async def answer(self) -> Any:
        """The next answer."""
        return await self._answers.get()


class Crew:
    """Workers under Ray Train, led from another process."""

    def __init__(self, *, workers: int, cpus: float, gpus: float, storage: str, name: str) -> None:
        for key, value in _SETTINGS.items():
            os.environ.setdefault(key, value)
        self._mailbox: Any = ray.remote(num_cpus=0)(Mailbox).remote()
        self._failure: BaseException | None = None
        trainer = Trainer(
            _serve,
            board=None,  # of elastic runs
            train_loop_config={"mailbox": self._mailbox},
            scaling_config=ScalingConfig(
                num_workers=workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": cpus, **({"GPU": gpus} if gpus else {})},
            ),
            torch_config=TorchConfig(backend="nccl" if gpus else "gloo", timeout_s=_PATIENCE),
            run_config=RunConfig(name=name, storage_path=storage, failure_config=FailureConfig(max_failures=0)),
        )
        self._thread = threading.Thread(target=self._run, args=(trainer,), name="crew", daemon=True)
        self._thread.start()

    def begin(self, leg: Leg) -> None:
        """Turn to a trial."""
        self._ask(leg)

    def advance(self) -> dict[str, Any]:
        """See `Session.advance`."""
        return self._ask("advance")

    def close(self) -> None:
        """End the workers."""
        if self._thread.is_alive():
            self._mailbox.tell.remote("end")
            self._thread.join(timeout=10)

    def _ask(self, command: Any) -> Any:
        self._mailbox.tell.remote(command)
        waiting = self._mailbox.answer.remote()
        while not ray.wait([waiting], timeout=0.2)[0]:
            if not self._thread.is_alive():
                raise self._failure or JobError("the workers of the trial ended by themselves")
        return ray.get(waiting)

    def _run(self, trainer: Trainer) -> None:
        try:
            trainer.fit()
        except TrainingFailedError as error:
            self._failure = _own(error)


def _own(error: TrainingFailedError) -> JobError:
    """The first worker's own error."""
    if isinstance(error, WorkerGroupError):
        for rank, own in own_errors(error.worker_failures).items():
            return JobError(f"worker {rank}: {type(own).__name__}: {own}")
        return JobError("a worker of the trial was lost; look for a lack of memory")
    return JobError(f"Ray could not run the workers of the trial: {str(error).strip().splitlines()[0]}")


def _serve(config: dict[str, Any]) -> None:
    """Runs in every worker: one session after another, as worker 0 is told."""
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    mailbox = config["mailbox"]
    session: Session | None = None
    while True:
        box: list[Any] = [ray.get(mailbox.command.remote()) if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        command, answer = box[0], None
        if session is not None and command != "advance":
            session.close()
        if command == "end":
            return
        if command == "advance":
            assert session is not None, "a crew is told to begin before it is told to advance"
            answer = session.advance()
        else:
            session = Session(command, rank=rank, world_size=world_size, device=str(get_device()))
        if rank == 0:
            ray.get(mailbox.reply.remote(answer))
