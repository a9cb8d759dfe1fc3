"""Errors of workers: which ones they raised themselves, and which follow from a lost worker."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from ray.exceptions import RayTaskError
from ray.train import ControllerError, TrainingFailedError, WorkerGroupError

from tokenfree.core.errors import JobError, StoppedError, UserError, first_line
from tokenfree.train.loop.worker import Stopped
from tokenfree.train.runs.run import Run


class Cause(NamedTuple):
    error: BaseException | None  # None: workers were lost without an error
    rank: int | None = None  # rank of the worker that raised it; None: not a worker of Ray Train


def unwrap(error: BaseException) -> Cause:
    """Return the error inside those that Ray wraps around it; if several workers failed, the first of `own_errors`."""
    inner = error.controller_failure if isinstance(error, ControllerError) else error
    if isinstance(inner, (WorkerGroupError, GaveUp)):
        causes = [Cause(cause, rank) for rank, cause in own_errors(inner.worker_failures).items()]
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

    def __init__(self, worker_failures: dict[int, Exception]) -> None:
        super().__init__(worker_failures)
        self.worker_failures = worker_failures


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
