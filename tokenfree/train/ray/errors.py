"""Errors as they come out of Ray: which are a worker's own, and how the user reads them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import ray
import torch
from ray.exceptions import RayTaskError
from ray.train import ControllerError, TrainingFailedError, WorkerGroupError

from tokenfree.preprocess.common.errors import JobError, StoppedError, UserError
from tokenfree.train.runs.run import Run
from tokenfree.train.worker.worker import Stopped


class Cause(NamedTuple):
    """What an error that came out of Ray is about."""

    error: BaseException | None  # None: workers were lost, and none said why
    rank: int | None = None  # of the worker that raised it; None: it was no worker of Ray Train

    @property
    def first_line(self) -> str:
        """The first line of the error's message; its kind where there is none."""
        return next(iter(str(self.error).strip().splitlines()), type(self.error).__name__)


def unwrap(error: BaseException) -> Cause:
    """The error inside those that Ray wraps around it: of several workers, the first one's own (see `own_errors`)."""
    inner = error.controller_failure if isinstance(error, ControllerError) else error
    if isinstance(inner, (WorkerGroupError, GaveUp)):
        causes = [Cause(own, rank) for rank, own in own_errors(inner.worker_failures).items()]
        return causes[0] if causes else Cause(None)
    while isinstance(inner, RayTaskError) and isinstance(inner.cause, BaseException):
        inner = inner.cause
    return Cause(inner)


def explain(error: TrainingFailedError, run: Run, folder: str) -> UserError | JobError:
    """An error of Ray Train as the user should read it; details go to `folder` of the run."""
    cause = unwrap(error)
    if cause.error is None:
        return JobError(
            f"workers were lost too often (train.max_restarts); see {run.name}/{folder}, look for a lack of memory, "
            "and run the same command again: it goes on from the newest checkpoint"
        )
    if cause.rank is None:
        return JobError(f"Ray could not run the workers: {cause.first_line}; see the logs in {run.name}/{folder}")
    who = f"worker {cause.rank}" + (f" on {node}" if (node := node_of(cause.error)) else "")
    if isinstance(cause.error, WorkerFailure):
        details = f"{folder}/error.txt"
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
            file.write(cause.error.details)
            file.flush()
            run.keep(Path(file.name), details)
        return JobError(f"{who} failed: {cause.error}; its traceback is in {run.name}/{details}")
    kind = next((kind for kind in (UserError, StoppedError) if isinstance(cause.error, kind)), JobError)
    return kind(f"{who}: {cause.error}")


def is_of_collective(error: Exception) -> bool:
    """Whether the error came from a broken connection to another worker (Gloo raises plain RuntimeErrors)."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "Gloo", "NCCL", "TCPStore"))


class GaveUp(Exception):
    """Raised in Ray's controller to end the run: for errors that workers raised by themselves, by rank; or for none,
    where workers were lost too often.
    """

    def __init__(self, worker_failures: dict[int, Exception]) -> None:
        super().__init__(worker_failures)
        self.worker_failures = worker_failures


class LostPeer(RuntimeError):
    """A collective operation failed because another worker is gone: no fault of this one's."""


class WorkerFailure(JobError):
    """An error that nobody expected in a worker: its kind and message, and its traceback."""

    def __init__(self, summary: str, details: str) -> None:
        super().__init__(summary, details)
        self.summary, self.details = summary, details

    def __str__(self) -> str:
        return self.summary


def with_node(error: JobError | UserError) -> JobError | UserError:
    """`error` of this worker, with the address of its node where there are several."""
    if len(ray.nodes()) > 1:
        vars(error)["node"] = ray.util.get_node_ip_address()
    return error


def node_of(error: BaseException) -> str | None:
    """The address that `with_node` added, None where it did not."""
    return vars(error).get("node")


def own_errors(failures: Mapping[int, Exception]) -> dict[int, Exception]:
    """The errors that workers raised by themselves, by rank: neither their loss nor the consequence of another's."""
    return {
        rank: error
        for rank, error in sorted(failures.items())
        if type(error).__module__.partition(".")[0] != "ray"
        and not isinstance(error, LostPeer)
        and not (isinstance(error, Stopped) and error.goes_on)
    }
