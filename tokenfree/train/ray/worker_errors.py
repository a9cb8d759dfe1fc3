"""Errors of workers: which ones they raised themselves, which follow from a loss, and what a run does about them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayTaskError
from ray.train import ControllerError, TrainingFailedError, WorkerGroupError

from tokenfree.core.errors import JobError, StoppedError, UserError, first_line
from tokenfree.train.loop.worker import Stopped
from tokenfree.train.ray.internals import WorkerGroupCallback
from tokenfree.train.runs.run import Run


class Cause(NamedTuple):
    error: BaseException | None  # None: workers were lost without an error
    rank: int | None = None  # rank of the worker that raised it; None: not a worker of Ray Train


def unwrap(error: BaseException) -> Cause:
    """Return the error inside those that Ray wraps around it; if several workers failed, the first of `own_errors`."""
    inner = error.controller_failure if isinstance(error, ControllerError) else error
    if isinstance(inner, (WorkerGroupError, GaveUp)):
        failures = inner.args[0] if isinstance(inner, GaveUp) else inner.worker_failures
        causes = [Cause(cause, rank) for rank, cause in own_errors(failures).items()]
        return causes[0] if causes else Cause(None)
    while isinstance(inner, RayTaskError) and isinstance(inner.cause, BaseException):
        inner = inner.cause
    return Cause(inner)


def explain(error: TrainingFailedError, run: Run, folder: str) -> UserError | JobError:
    """Return an error of Ray Train as a message for the user. Details are written to `folder` of the run."""
    cause = unwrap(error)
    if cause.error is None:
        return JobError(
            f"workers were lost too often (train.max_restarts); see {run.name}/{folder}, look for a lack of memory, "
            "and run the same command again: it resumes from the newest checkpoint"
        )
    if cause.rank is None:
        return JobError(
            f"Ray could not run the workers: {first_line(cause.error)}; see the logs in {run.name}/{folder}"
        )
    message = f"worker {cause.rank}: {cause.error}"
    if isinstance(cause.error, StoppedError):
        return StoppedError(message, reason=cause.error.reason)
    return UserError(message) if isinstance(cause.error, UserError) else JobError(message)


def is_of_collective(error: Exception) -> bool:
    """Return True if the error comes from a broken connection to another worker.

    Gloo raises plain RuntimeErrors.
    """
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(
        word in str(error) for word in ("gloo", "Gloo", "NCCL", "TCPStore")
    )


class GaveUp(Exception):
    """Raised in Ray's controller to end the run, with the errors of workers by rank; none after too many losses."""


class LostPeer(RuntimeError):
    """Raised when a collective operation fails because another worker is lost."""


def own_errors(failures: Mapping[int, Exception]) -> dict[int, Exception]:
    """Return the errors that workers raised themselves, by rank, without losses and the failures that these cause."""
    return {
        rank: error
        for rank, error in sorted(failures.items())
        if type(error).__module__.partition(".")[0] != "ray"
        and not isinstance(error, LostPeer)
        and not (isinstance(error, Stopped) and error.resumes)
    }


class LossCallback(WorkerGroupCallback):
    """A callback that ends the run or records an event when workers fail. Ray restarts workers without limit.

    It raises `GaveUp` if a worker raised an error itself, which would recur, or after `max_losses` losses.
    Stops with a checkpoint are not counted. Workers are asked to stop before their node is drained and
    removed.
    """

    def __init__(self, run: str, owner: str | None, channel: Any, max_losses: int) -> None:
        self._run, self._owner, self._channel, self._left = run, owner, channel, max_losses
        self._reported = self._noticed = False

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._reported = self._noticed = False

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        info = worker_group_status.get_preemption_info()
        if info is not None and not self._noticed:
            self._noticed = True
            self._channel.ask_to_stop.remote(
                f"the coming end of node {', '.join(info.preempted_node_ids)}", True
            )
        if worker_group_status.errors:
            self._report(worker_group_status.errors)

    def _report(self, worker_exceptions: dict[int, Exception]) -> None:
        """Report who was lost or stopped.

        While a node goes down, Ray repeats this call with the same errors.
        """
        worker_errors = own_errors(worker_exceptions)
        if worker_errors:
            raise GaveUp(worker_errors)
        if self._reported:
            return
        self._reported = True
        stopped = [error for error in worker_exceptions.values() if isinstance(error, Stopped)]
        if stopped:
            message = (
                f"workers stopped after step {stopped[0].step} by {stopped[0].reason}; starting them again"
            )
            self._record([], message)
            return
        if not self._left:
            raise GaveUp({})
        self._left -= 1
        ranks = [rank for rank, error in sorted(worker_exceptions.items()) if not isinstance(error, LostPeer)]
        lost = f"worker {', '.join(map(str, ranks))}" if ranks else "a worker"
        self._record(ranks, f"{lost} was lost; starting the workers again from the newest checkpoint")

    def _record(self, ranks: list[int], message: str) -> None:
        line = Run(self._run, self._owner).add_event("worker_lost", ranks=ranks, message=message)
        ray.get(self._channel.post.remote([line]))
