"""A run brought to its end: opened or found complete, claimed, begun or gone on with, trained, closed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any, Generic

import torch

from tokenfree.core.errors import UserError
from tokenfree.core.machine import cores
from tokenfree.core.settings import to_mapping
from tokenfree.train.config import R
from tokenfree.train.jobs.start import Extension, GivenStart
from tokenfree.train.loop.worker import Job, work
from tokenfree.train.runs import trackers
from tokenfree.train.runs.config import RunConfig, config_before
from tokenfree.train.runs.hashes import rewritten, write_hashes
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.provenance import attempt
from tokenfree.train.runs.run import Run


@dataclasses.dataclass(frozen=True)
class RunOrder(Generic[R]):
    """What is to become of a run.

    Attributes:
        config: of the run as it is now.
        make_job: the job of its workers, by its recipe and its owner (see `Run`).
        start: the weights that it begins with, where they are given.
        extension: makes it longer. Only for pretraining.
        keep: copies what else belongs into the run, once it is claimed.
    """

    config: RunConfig[R]
    make_job: Callable[[R, str | None], Job]
    start: GivenStart[R] | None = None
    extension: Extension | None = None
    keep: Callable[[Run], None] | None = None


def run_to_end(
    target: Run, order: RunOrder[R], workers: tuple[int, int], progress: OnLine | None
) -> tuple[dict[str, Any], bool]:
    """Bring `target` to its end; the content of its result.json, and whether it was complete before.

    Args:
        target: new, unfinished or complete.
        order: what is to become of it.
        workers: the fewest and the most.
        progress: gets every line of metrics.jsonl and events.jsonl as it appears.

    Raises:
        UserError: it is a run of other settings or data, another command trains it, or this machine has not the GPUs
            that are asked for.
        JobError: training failed; the message says on which rank and what to do.
    """
    recipe, start, extension = order.config.recipe, order.start, order.extension
    trackers.check(recipe.train.log_to)
    if target.result() is None or extension is not None:
        _check_device(recipe.train.device, workers)
    target.open(order.config)
    result = target.result()
    if result is not None:
        rewritten(target.name, ["config.yaml"])
    if result is not None and (extension is None or extension.is_done):
        return result, True
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(target.claimed())
        target.open(order.config)  # another command may have begun it meanwhile
        claimed = Run(target.name, owner)
        if extension is not None:
            extension.write(claimed, progress)
            recipe = dataclasses.replace(recipe, train=extension.after.train)
        config = config_before(claimed.name, recipe)
        assert config is not None, "the run was opened"
        claimed.write_config(dataclasses.replace(config, attempts=(*config.attempts, attempt())))
        if order.keep is not None:
            order.keep(claimed)
        if start is not None:
            start.write(claimed, progress)
        job = order.make_job(recipe, owner)
        with trackers.tracked(recipe.train.log_to, target, to_mapping(recipe), progress) as on_line:
            _train(job, workers, on_line)
        write_hashes(target.name)
    result = target.result()
    assert result is not None, "the worker of rank 0 writes the result before it ends"
    return result, False


def _check_device(device: str, workers: tuple[int, int]) -> None:
    """See that this machine has the GPUs that `train.device` asks for; those of a cluster may be yet to come.

    Raises:
        UserError: it has not.
    """
    least, there = workers[0], torch.cuda.device_count()
    is_elsewhere = workers[1] > 1 and "RAY_ADDRESS" in os.environ
    if device == "cuda" and there < least and not is_elsewhere:
        raise UserError(
            f"train.device: cuda needs {least} {'GPU' if least == 1 else 'GPUs'}, of which torch finds {there} on this "
            "machine; see tokenfree doctor, or give auto"
        )


def num_restarts(run: Run) -> int:
    """How often the workers of a run were started again after the first time."""
    return sum(event["event"] in ("start", "resume") for event in run.events()) - 1


def _train(job: Job, workers: tuple[int, int], on_line: OnLine | None) -> None:
    """Do the job in this process, or with workers of Ray where there are to be several."""
    if workers[1] > 1:
        from tokenfree.train.ray.child import work_on_ray

        work_on_ray(job, workers, on_line)
        return
    device = "cuda" if torch.cuda.is_available() and job.recipe.train.device != "cpu" else "cpu"
    threads = job.recipe.train.threads or min(cores(), torch.get_num_threads())
    work(job, device=device, threads=threads, on_line=on_line)
