"""The workers of a run under Ray Train.

Ray places the workers, joins them to one torch.distributed group and starts them again after a loss. The training
state is not Ray's: each new group of workers goes on from the newest sound checkpoint of the run folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from pyarrow.fs import FSSpecHandler, PyFileSystem
from ray._private.ray_logging import stdout_deduplicator
from ray._private.worker import global_worker
from ray.exceptions import RayActorError, RayTaskError
from ray.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchConfig, get_device
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError

from preprocess.errors import JobError, UserError
from preprocess.storage import Storage
from train.ray_board import make_board, posting, shown
from train.ray_session import cores, ray_session
from train.ray_trainer import LostPeer, Trainer, WorkerFailure, coming_end, node_of, notice, own_errors, with_node
from train.run_folder import RunFolder, run_at
from train.stopping import stop_on_signals
from train.worker import Job, Stopped, work

OnLine = Callable[[Mapping[str, Any]], None]

_SETTINGS = {  # where the user has not set them
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # how soon a lost worker is noticed; 2 by default
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the coming default; without it each start prints a warning
    "OMP_WAIT_POLICY": "passive",  # threads that spin while they wait made a busy machine 40 times slower
}
_ELASTIC_SETTINGS = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10"}  # for room on the nodes, then it is planned anew
_RESIZE_INTERVAL = 20.0  # seconds between two looks for room for more workers


def work_on_ray(job: Job, workers: tuple[int, int], progress: OnLine | None) -> None:
    """Bring the run `job.run` to its end with between `workers[0]` and `workers[1]` workers.

    Raises:
        UserError, JobError: what a worker raised, with its rank.
    """
    if progress is not None:
        progress({"event": "launch", "step": None, "message": f"starting {workers[1]} workers under Ray"})
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quick_and_quiet(elastic=workers[0] < workers[1]))
        threads, use_gpu = stack.enter_context(_cluster(job, workers[1]))
        board = make_board()
        stack.enter_context(shown(board, progress, stack.enter_context(stop_on_signals())))
        for attempts_left in reversed(range(job.recipe.train.max_restarts + 1)):
            try:
                return _fit(job, workers, threads, use_gpu, board)
            except RayActorError as error:  # of the controller; the loss of a worker is the controller's to mend
                if not attempts_left:
                    raise JobError(f"the process that leads the workers was lost too often: {error}") from error
                message = "the process that leads the workers was lost; starting them again from the newest checkpoint"
                _record_loss(job, board, [], message)


def _fit(job: Job, workers: tuple[int, int], threads: int, use_gpu: bool, board: Any) -> None:
    """One life of Ray's controller."""
    storage = Storage.at(job.run)
    name = f"attempt_{1 + len(storage.names('ray')):04d}"  # an old name would revive Ray's old state
    trainer = Trainer(
        _work_on_worker,
        board,
        train_loop_config={"job": job, "threads": threads, "board": board},
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
            callbacks=[_LossRecorder(job, board)],
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        raise _unwrap(error, run_at(job.run), f"ray/{name}") from error
    finally:
        _keep_logs(run_at(job.run), f"ray/{name}/logs")


class _LossRecorder(UserCallback):
    """Writes the loss of workers to the events of the run; lives in the controller."""

    def __init__(self, job: Job, board: Any) -> None:
        self._job, self._board = job, board

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        if own_errors(worker_exceptions):
            return
        stopped = [error for error in worker_exceptions.values() if isinstance(error, Stopped)]
        if stopped:
            message = f"workers stopped after step {stopped[0].step} by {stopped[0].reason}; starting them again"
            _record_loss(self._job, self._board, [], message)
            return
        ranks = [rank for rank, error in sorted(worker_exceptions.items()) if not isinstance(error, LostPeer)]
        lost = f"worker {', '.join(map(str, ranks))}" if ranks else "a worker"
        message = f"{lost} was lost; starting the workers again from the newest checkpoint"
        _record_loss(self._job, self._board, ranks, message)


def _record_loss(job: Job, board: Any, ranks: list[int], message: str) -> None:
    line = run_at(job.run, job.owner).add_event("worker_lost", ranks=ranks, message=message)
    ray.get(board.post.remote([line]))


def _work_on_worker(config: dict[str, Any]) -> None:
    """Runs in every worker: its part of the job, with errors in the form that driver and failure policy read."""
    context = ray.train.get_context()
    rank = context.get_world_rank()
    try:
        with contextlib.ExitStack() as stack:
            on_line = stack.enter_context(posting(config["board"], notice, coming_end)) if rank == 0 else None
            work(
                config["job"],
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
        if _is_of_collective(error):
            raise LostPeer(str(error)) from error
        raise with_node(WorkerFailure(f"{type(error).__name__}: {error}", traceback.format_exc())) from error


def _is_of_collective(error: Exception) -> bool:
    """Whether the error came from a broken connection to another worker (Gloo raises plain RuntimeErrors)."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "Gloo", "NCCL", "TCPStore"))


def _unwrap(error: TrainingFailedError, place: RunFolder, folder: str) -> UserError | JobError:
    """The first worker's own error as the user should read it; details go to `folder` of the run."""
    if isinstance(error, WorkerGroupError):
        for rank, own in own_errors(error.worker_failures).items():
            kind = UserError if isinstance(own, UserError) else JobError
            who = f"worker {rank}" + (f" on {node}" if (node := node_of(own)) else "")
            if isinstance(own, WorkerFailure):
                details = f"{folder}/error.txt"
                with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
                    file.write(own.details)
                    file.flush()
                    place.keep(Path(file.name), details)
                return JobError(f"{who} failed: {own}; its traceback is in {place.name}/{details}")
            return kind(f"{who}: {own}")
        return JobError(
            f"workers were lost too often (train.max_restarts); see {place.name}/{folder}, look for a lack of memory, "
            "and run the same command again: it goes on from the newest checkpoint"
        )
    cause: Any = error.controller_failure if isinstance(error, ControllerError) else error
    while isinstance(cause, RayTaskError) and cause.cause is not None:  # the layers of Ray
        cause = cause.cause
    first_line = str(cause).strip().splitlines()[0]
    return JobError(f"Ray could not run the workers: {first_line}; see the logs in {place.name}/{folder}")


@contextlib.contextmanager
def _quick_and_quiet(*, elastic: bool) -> Iterator[None]:
    """For as long as training lasts, set what Ray reads from the environment of the driver, where the user has not.

    What Ray prints about a lost worker (eight lines of advice) is left to its logs; the user gets a line of ours.
    """
    settings = {**_SETTINGS, **(_ELASTIC_SETTINGS if elastic else {})}
    added = {name: value for name, value in settings.items() if name not in os.environ}
    before = stdout_deduplicator.skip_re
    os.environ.update(added)
    stdout_deduplicator.skip_re = re.compile("A worker died or was killed")
    try:
        yield
    finally:
        stdout_deduplicator.skip_re = before
        for name in added:
            del os.environ[name]


@contextlib.contextmanager
def _cluster(job: Job, num_workers: int) -> Iterator[tuple[int, bool]]:
    """A Ray session (see train/ray_session.py). Yields the CPUs of a worker, and whether workers have a GPU each."""
    alone = "RAY_ADDRESS" not in os.environ and not ray.is_initialized()
    threads = job.recipe.train.threads
    if threads is None:
        threads = max(1, cores() // num_workers) if alone else 1
    with ray_session(max(cores(), threads * num_workers)):
        yield threads, ray.cluster_resources().get("GPU", 0) >= num_workers


def _keep_logs(place: RunFolder, folder: str) -> None:
    """Copy what Ray Train logged on this machine (the recoveries and their reasons) beside the run."""
    node = global_worker.node
    logs = None if node is None else Path(node.get_logs_dir_path()) / "train"
    for log in sorted(logs.iterdir()) if logs is not None and logs.is_dir() else []:
        place.keep(log, f"{folder}/{log.name}")
