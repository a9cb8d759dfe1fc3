"""The workers of a run under Ray Train.

Ray places the workers, joins them to one torch.distributed group and starts them again after a loss. The training
state is not Ray's: each new group of workers goes on from the newest sound checkpoint of the run folder.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import ray.train
from pyarrow.fs import FSSpecHandler, PyFileSystem
from ray._private.worker import global_worker
from ray.exceptions import RayActorError
from ray.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchConfig, get_device
from ray.train.v2.api.exceptions import TrainingFailedError

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.loop.stopping import stop_on_signals
from tokenfree.train.machine.cpus import cores
from tokenfree.train.ray.channel import connect_worker, forward_lines, make_channel
from tokenfree.train.ray.environment import ray_environment
from tokenfree.train.ray.errors import LostPeer, WorkerFailure, explain, is_of_collective, own_errors, with_node
from tokenfree.train.ray.session import ray_session
from tokenfree.train.ray.trainer import Trainer, coming_end, notice
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run
from tokenfree.train.worker.worker import Stopped, TrainJob, work

_RESIZE_INTERVAL = 20.0  # seconds between two looks for room for more workers
_ELASTIC = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10"}  # for room on the nodes, then it is planned anew


def work_on_ray(job: TrainJob, workers: tuple[int, int], progress: OnLine | None) -> None:
    """Bring the run `job.run` to its end with between `workers[0]` and `workers[1]` workers.

    `progress` gets the lines that are recorded, and one that says that the workers are started.

    Raises:
        UserError, JobError: what a worker raised, with its rank; or JobError, Ray could not be started or reached.
    """
    if progress is not None:
        progress({"event": "launch", "step": None, "message": f"starting {workers[1]} workers under Ray"})
    with contextlib.ExitStack() as stack:
        stack.enter_context(ray_environment(_ELASTIC if workers[0] < workers[1] else None))
        threads, use_gpu = stack.enter_context(_cluster(job, workers[1]))
        channel = make_channel()
        stack.enter_context(forward_lines(channel, progress, stack.enter_context(stop_on_signals())))
        for attempts_left in reversed(range(job.recipe.train.max_restarts + 1)):
            try:
                return _fit(job, workers, threads, use_gpu, channel)
            except RayActorError as error:  # of the controller; the loss of a worker is the controller's to mend
                if not attempts_left:
                    raise JobError(f"the process that leads the workers was lost too often: {error}") from error
                message = "the process that leads the workers was lost; starting them again from the newest checkpoint"
                _record_loss(run_at(job.run, job.owner), channel, [], message)


def _fit(job: TrainJob, workers: tuple[int, int], threads: int, use_gpu: bool, channel: Any) -> None:
    """One life of Ray's controller."""
    storage = Storage.at(job.run)
    name = f"attempt_{1 + len(storage.names('ray')):04d}"  # an old name would revive Ray's old state
    trainer = Trainer(
        _work_on_worker,
        channel,
        train_loop_config={"job": pickle.dumps(job), "threads": threads, "channel": channel},
        scaling_config=ScalingConfig(
            num_workers=workers[0] if workers[0] == workers[1] else workers,
            use_gpu=use_gpu,
            elastic_resize_monitor_interval_s=_RESIZE_INTERVAL,
            resources_per_worker={"CPU": threads, **({"GPU": 1} if use_gpu else {})},
        ),
        torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo"),
        run_config=RunConfig(
            name=name,
            storage_path=storage.path("ray"),
            storage_filesystem=None if storage.is_local else PyFileSystem(FSSpecHandler(storage.fs)),
            failure_config=FailureConfig(
                max_failures=job.recipe.train.max_restarts, controller_failure_limit=job.recipe.train.max_restarts
            ),
            callbacks=[_LossRecorder(job.run, job.owner, channel)],
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        raise explain(error, run_at(job.run), f"ray/{name}") from error
    finally:
        _keep_logs(run_at(job.run), f"ray/{name}/logs")


class _LossRecorder(UserCallback):
    """Writes the loss of workers to the events of the run; lives in the controller."""

    def __init__(self, run: str, owner: str | None, channel: Any) -> None:
        self._run, self._owner, self._channel = run, owner, channel

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Record who was lost or stopped, by rank; errors of workers' own are told by `explain` at the end."""
        if own_errors(worker_exceptions):
            return
        stopped = [error for error in worker_exceptions.values() if isinstance(error, Stopped)]
        if stopped:
            message = f"workers stopped after step {stopped[0].step} by {stopped[0].reason}; starting them again"
            _record_loss(run_at(self._run, self._owner), self._channel, [], message)
            return
        ranks = [rank for rank, error in sorted(worker_exceptions.items()) if not isinstance(error, LostPeer)]
        lost = f"worker {', '.join(map(str, ranks))}" if ranks else "a worker"
        message = f"{lost} was lost; starting the workers again from the newest checkpoint"
        _record_loss(run_at(self._run, self._owner), self._channel, ranks, message)


def _record_loss(run: Run, channel: Any, ranks: list[int], message: str) -> None:
    line = run.add_event("worker_lost", ranks=ranks, message=message)
    ray.get(channel.post.remote([line]))


def _work_on_worker(config: dict[str, Any]) -> None:
    """Runs in every worker: its part of the job, with errors in the form that driver and failure policy read."""
    context = ray.train.get_context()
    rank = context.get_world_rank()
    try:
        with contextlib.ExitStack() as stack:
            job = _unpickled(config["job"])
            on_line = stack.enter_context(connect_worker(config["channel"], notice, coming_end)) if rank == 0 else None
            work(
                job,
                rank=rank,
                world_size=context.get_world_size(),
                device=str(get_device()),
                threads=config["threads"],
                on_line=on_line,
                stop=notice,
            )
    except (UserError, JobError) as error:
        with_node(error)
        raise
    except Exception as error:
        if is_of_collective(error):
            raise LostPeer(str(error)) from error
        raise with_node(WorkerFailure(f"{type(error).__name__}: {error}", traceback.format_exc())) from error


def _unpickled(job: bytes) -> TrainJob:
    """The job as a worker gets it. Ray would take parts that it cannot import for a loss, and start workers for ever.

    Raises:
        UserError: a module with parts of the user's own is not there.
    """
    try:
        return pickle.loads(job)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"a part of your own cannot be imported ({error}); have its module on every node: at the same path, "
            "installed, or sent along with the job"
        ) from error


@contextlib.contextmanager
def _cluster(job: TrainJob, num_workers: int) -> Iterator[tuple[int, bool]]:
    """A Ray session (see train/ray/session.py). Yields the CPUs of a worker, and whether workers have a GPU each."""
    alone = "RAY_ADDRESS" not in os.environ and not ray.is_initialized()
    threads = job.recipe.train.threads
    if threads is None:
        threads = max(1, cores() // num_workers) if alone else 1
    with ray_session(max(cores(), threads * num_workers)):
        yield threads, ray.cluster_resources().get("GPU", 0) >= num_workers


def _keep_logs(run: Run, folder: str) -> None:
    """Copy what Ray Train logged on this machine (the recoveries and their reasons) beside the run."""
    node = global_worker.node
    logs = None if node is None else Path(node.get_logs_dir_path()) / "train"
    for log in sorted(logs.iterdir()) if logs is not None and logs.is_dir() else []:
        run.keep(log, f"{folder}/{log.name}")
