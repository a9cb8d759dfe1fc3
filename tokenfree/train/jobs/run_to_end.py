"""Train a run to its end: open it or find it complete, claim it, start or resume it, and close it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Generic

import torch
from tqdm import tqdm

from tokenfree.core.errors import UserError
from tokenfree.core.machine import cores
from tokenfree.core.settings import to_mapping
from tokenfree.train.config import LoopConfig, R
from tokenfree.train.jobs.start import Extension, GivenStart
from tokenfree.train.loop.parallel import check_compile
from tokenfree.train.loop.worker import Job, work
from tokenfree.train.runs import trackers
from tokenfree.train.runs.config import RunConfig, config_before
from tokenfree.train.runs.hashes import rewritten, write_hashes
from tokenfree.train.runs.metrics import Line, OnLine
from tokenfree.train.runs.provenance import attempt
from tokenfree.train.runs.run import Run

_LOG_INTERVAL = 10.0  # seconds between logged losses
logger = logging.getLogger("tokenfree")


@dataclasses.dataclass(frozen=True)
class RunOrder(Generic[R]):
    config: RunConfig[R]  # for this command
    make_job: Callable[..., Job]  # from `recipe` and `owner` (see `Run`)
    start: GivenStart[R] | None = None
    extension: Extension | None = None  # for pretraining only
    keep: Callable[[Run], None] | None = None  # copies other files into the run once it is claimed


def run_to_end(
    target: Run, order: RunOrder[R], workers: tuple[int, int], progress: OnLine | None
) -> tuple[dict[str, Any], bool]:
    """Train `target` to its end. Return the content of its result.json, and whether it was complete before.

    Raises UserError if the run has other settings or data or is being trained, JobError if training failed.
    """
    recipe, start, extension = order.config.recipe, order.start, order.extension
    trackers.check(recipe.train.log_to)
    result = target.result()
    if result is None or extension is not None:
        _check_device(recipe.train, workers)
    target.open(order.config)
    if result is not None:
        rewritten(target.name, ["config.yaml"])
        if extension is None or extension.is_done:
            return result, True
    progress = progress or _logged(recipe.train.steps)
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(target.claimed())
        target.open(order.config)  # another command may have started it meanwhile
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
        job = order.make_job(recipe=recipe, owner=owner)
        with trackers.tracked(recipe.train.log_to, target, to_mapping(recipe), progress) as on_line:
            _train(job, workers, on_line)
        write_hashes(target.name)
    result = target.result()
    assert result is not None, "the worker of rank 0 writes the result before it ends"
    return result, False


def _logged(num_steps: int) -> OnLine:
    """Return a function that draws a bar in a notebook, and logs events, validations and losses at INFO."""
    logged_at = float("-inf")
    bar = tqdm(total=num_steps, unit="step", disable="ipykernel" not in sys.modules)

    def log(line: Line) -> None:
        nonlocal logged_at
        if "event" in line:
            logger.info("step %s: %s", line.get("step"), line.get("message", line["event"]))
        elif "validation_loss" in line:
            logger.info("step %d: held-out loss %.3f", line["step"], line["validation_loss"])
        elif time.monotonic() - logged_at >= _LOG_INTERVAL:
            logged_at = time.monotonic()
            logger.info("step %d: loss %.3f", line["step"], line["loss"])
        if "loss" in line:
            bar.set_postfix(loss=f"{line['loss']:.3f}", refresh=False)
            bar.update(line["step"] - bar.n)
        if line.get("event") == "complete":
            bar.close()

    return log


def _check_device(train: LoopConfig, workers: tuple[int, int]) -> None:
    least, there = workers[0], torch.cuda.device_count()
    is_elsewhere = workers[1] > 1 and "RAY_ADDRESS" in os.environ
    check_compile(train.compile, "cpu" if train.device == "cpu" or not (there or is_elsewhere) else "cuda")
    if train.device == "cuda" and there < least and not is_elsewhere:
        raise UserError(
            f"train.device=cuda needs a GPU per worker: {least}. torch finds {there} on this machine; see tokenfree "
            "doctor, or give auto"
        )


def num_restarts(run: Run) -> int:
    return sum(event["event"] in ("start", "resume") for event in run.events()) - 1


def _train(job: Job, workers: tuple[int, int], on_line: OnLine | None) -> None:
    if workers[1] > 1:
        from tokenfree.train.ray.child import work_on_ray

        work_on_ray(job, workers, on_line)
        return
    device = "cuda" if torch.cuda.is_available() and job.recipe.train.device != "cpu" else "cpu"
    threads = job.recipe.train.threads or min(cores(), torch.get_num_threads())
    work(job, device=device, threads=threads, on_line=on_line)
