"""The command's side of a run on Ray: what speaks to Ray is a process of its own, started again where Ray ends it.

Ray ends a process that is connected to it, without a word, when the raylet of its node or one that holds its objects is
gone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenfree.preprocess.common.errors import JobError
from tokenfree.train.loop.stopping import Stop, stop_on_signals
from tokenfree.train.machine.child import Child, ChildEnded
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.worker.worker import Job

_DRIVER = "tokenfree.train.ray.launch:drive"  # by name: Ray is imported there only, in seconds
_INTERVAL = 0.2  # seconds between two looks at whether training is to stop
_SETTLE_SECONDS = 5.0  # in which the end of a raylet shows that ends in order


class _Loss(NamedTuple):
    """A part of Ray that is gone, in words, and who starts it again."""

    words: str
    is_ours: bool  # this command does


def work_on_ray(job: Job, workers: tuple[int, int], progress: OnLine | None) -> None:
    """Bring the run `job.run` to its end with between `workers[0]` and `workers[1]` workers.

    `progress` gets the lines that are recorded, and one that says that the workers are started.

    Raises:
        UserError, JobError: what a worker raised, with its rank; or JobError, Ray could not be started or reached, or
            parts of it were lost too often.
    """
    if progress is not None:
        progress({"event": "launch", "step": None, "message": f"starting {workers[1]} workers under Ray"})
    run = run_at(job.run, job.owner)
    environment = _environment()
    is_local = "RAY_ADDRESS" not in environment
    for attempts_left in reversed(range(job.recipe.train.max_restarts + 1)):
        loss = _drive(job, workers, progress, environment)
        if loss is None or run.result() is not None:  # the workers were done
            return
        if not loss.is_ours or not attempts_left:
            raise JobError(
                f"{loss.words}; {'look for a lack of memory' if loss.is_ours else 'start it'}, and run the same "
                "command again: it goes on from the newest checkpoint"
            )
        again = "Ray and the workers again" if is_local else "the workers again from the newest checkpoint"
        line = run.add_event("worker_lost", ranks=[], message=f"{loss.words}; starting {again}")
        if progress is not None:
            progress(line)


def _drive(job: Job, workers: tuple[int, int], progress: OnLine | None, environment: Mapping[str, str]) -> _Loss | None:
    """One life of the process that is connected to Ray; None: training is done."""
    session: bytes | None = None
    stop: Stop | None = None
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".txt"))  # where Ray writes dozens of lines
        arguments = pickle.dumps(job), workers
        child = stack.enter_context(Child(_DRIVER, *arguments, environment=environment, errors=errors))
        for message in child.messages(_INTERVAL):
            if message is not None and session is None:  # before that, a signal ends all at once
                session, stop = message, stack.enter_context(stop_on_signals())
            elif message is not None and progress is not None:
                progress(message)
            if stop:
                child.send(stop.reason)
        try:
            words = child.result()
        except ChildEnded:
            words = ""
        if words is not None and stop:
            raise JobError(f"stopped by {stop.reason}; the same command goes on from the newest checkpoint")
        if words == "":
            with contextlib.suppress(OSError, JobError):  # the disk is full, or the store fails: told elsewhere
                run_at(job.run, job.owner).keep(Path(errors.name), "ray/standard_error.txt")
    if words is None:
        return None
    if session is None:
        raise JobError("Ray ended the process that was to connect to it; run the same command again")
    is_local = "RAY_ADDRESS" not in environment
    return _Loss(words, is_ours=is_local) if words else _what_was_lost(session, is_local=is_local)


def _what_was_lost(session: bytes, *, is_local: bool) -> _Loss:
    """Where Ray ended our process, which is all that it says of a loss."""
    if is_local:
        return _Loss("the Ray node of this machine (its raylet, or an agent that it needs) was lost", is_ours=True)
    until = time.monotonic() + _SETTLE_SECONDS
    try:
        while time.monotonic() < until:
            pickle.loads(session).check()
            time.sleep(_INTERVAL)
    except JobError as error:
        return _Loss(str(error), is_ours=False)
    return _Loss("Ray ended the process connected to its cluster, as it does at the loss of a node", is_ours=True)


def _environment() -> dict[str, str]:
    """That of this process, with the address of the Ray cluster that it is connected to, if it is to one."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return dict(os.environ)
    return {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
