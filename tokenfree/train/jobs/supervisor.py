"""The command's side of a run on Ray: what speaks to Ray is a process of its own, started again where Ray ends it."""

from __future__ import annotations

import pickle
from typing import Any

from tokenfree.train.jobs.ray_child import RayChild
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.worker.worker import Job

_DRIVER = "tokenfree.train.ray.launch:drive"  # by name: Ray is imported there only, in seconds


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
    child = RayChild(
        _DRIVER,
        take=_ignore if progress is None else progress,
        keep=lambda errors: run.keep(errors, "ray/standard_error.txt"),
        stops=True,
    )
    for attempts_left in reversed(range(job.recipe.train.max_restarts + 1)):
        loss = child.call(pickle.dumps(job), workers)
        if loss is None or run.result() is not None:  # the workers were done
            return
        if not loss.is_ours or not attempts_left:
            raise loss.final("from the newest checkpoint")
        again = "Ray and the workers again" if child.is_local else "the workers again from the newest checkpoint"
        line = run.add_event("worker_lost", ranks=[], message=f"{loss.words}; starting {again}")
        if progress is not None:
            progress(line)


def _ignore(line: Any) -> None:
    """Where nobody listens."""
