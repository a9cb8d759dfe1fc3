"""Train a run to its end: open it or find it complete, claim it, start, extend or resume it, and close it.

After an extension, the learning rates are those of a run of the new length. The earlier steps keep their
rates, so the result differs from that of a run of the new length.
"""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from tqdm import tqdm

from tokenfree.core.errors import UserError, logger
from tokenfree.core.machine import cores
from tokenfree.core.ray_access import named_cluster
from tokenfree.core.settings_values import to_mapping
from tokenfree.core.stored_files import check_finished, recorded_hashes
from tokenfree.train.config import LoopConfig, PretrainRecipe, R
from tokenfree.train.jobs.init_from import GivenStart
from tokenfree.train.loop.parallel import check_compile
from tokenfree.train.loop.worker import Job, work
from tokenfree.train.runs import trackers
from tokenfree.train.runs.config import RunConfig, config_before, read_config
from tokenfree.train.runs.hashes import remove_hashes, write_hashes
from tokenfree.train.runs.metrics import Line, OnLine
from tokenfree.train.runs.provenance import attempt
from tokenfree.train.runs.run import Run

_LOG_INTERVAL = 10.0  # seconds between logged losses


class Extension:
    """An extension of the existing `run` to a total of `steps`.

    Raises UserError if there is no run or it is longer.
    """

    def __init__(self, run: Run, recipe: PretrainRecipe, steps: int) -> None:
        previous = config_before(run.name, recipe)
        if previous is None:
            raise UserError(
                f"--extend-to {steps}: {run.name} is not a run yet; begin it with --train.steps {steps}"
            )
        self._run, self._steps, self._steps_before = run, steps, previous.recipe.train.steps
        if steps < self._steps_before:
            raise UserError(
                f"--extend-to {steps}: {run.name} is a run of {self._steps_before:,} steps; give more, or leave it out"
            )
        self.before = _with_steps(recipe, self._steps_before)
        self.after = _with_steps(recipe, steps)
        self.is_done = steps == self._steps_before

    def line(self) -> str:
        return (
            f"made longer, from {self._steps_before:,} to {self._steps:,} steps; step {self._done() + 1:,} and those "
            f"after it have the learning rate of a run of {self._steps:,} steps"
        )

    def write(self, run: Run, on_line: OnLine) -> None:
        """Extend `run`, which this command has claimed. Do nothing if it already has that length."""
        self._run = run
        if self.is_done:
            return
        line = run.add_event(
            "extend",
            step=self._done(),
            steps=self._steps,
            steps_before=self._steps_before,
            message=self.line(),
        )
        run.reopen(dataclasses.replace(read_config(run.name), recipe=self.after))
        on_line(line)

    def _done(self) -> int:
        # The workers report damaged ones.
        checkpoint = self._run.newest(lambda warning: None)
        return 0 if checkpoint is None else checkpoint.step


def _with_steps(recipe: PretrainRecipe, steps: int) -> PretrainRecipe:
    return dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, steps=steps))


def run_to_end(
    target: Run,
    now: RunConfig[R],
    make_job: Callable[..., Job],
    *,
    start: GivenStart[R] | None,
    extension: Extension | None = None,
    keep: Callable[[Run], None] | None = None,
    workers: tuple[int, int],
    progress: OnLine | None,
) -> tuple[dict[str, Any], bool]:
    """Train `target` to its end. Return the content of its result.json, and whether it was complete before.

    `now` is the config of this command. `make_job` gets `recipe` and `owner` (see `Run`). `keep` copies other
    files into the run once it is claimed. Raises UserError if the run has other settings or data or is being
    trained, JobError if training failed.
    """
    recipe = now.recipe
    trackers.check(recipe.train.log_to)
    stays = extension is None or extension.is_done
    # Training resumes from the newest valid checkpoint.
    checks_all = stays and target.storage.is_local
    check_finished(target.name, lambda name: checks_all or not name.startswith("checkpoints/"))
    result = target.result()
    if result is None or extension is not None:
        _check_device(recipe.train, workers)
    target.open(now)
    if result is not None and stays:
        # An earlier command was killed before it wrote them.
        if not recorded_hashes(target.storage):
            write_hashes(target.name)
        return result, True
    progress = progress or _logged(recipe.train.steps)
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(target.claimed())
        # Another command may have started it meanwhile.
        config = target.open(now)
        remove_hashes(target.name)
        claimed = Run(target.name, owner)
        if extension is not None:
            extension.write(claimed, progress)
            recipe = dataclasses.replace(recipe, train=extension.after.train)
        claimed.write_config(
            dataclasses.replace(config, recipe=recipe, attempts=(*config.attempts, attempt()))
        )
        if keep is not None:
            keep(claimed)
        if start is not None:
            start.write(claimed, progress)
        job = make_job(recipe=recipe, owner=owner)
        with trackers.tracked(recipe.train.log_to, target, to_mapping(recipe), progress) as on_line:
            _train(job, workers, on_line)
        write_hashes(target.name)
    result = target.result()
    assert result is not None, "the worker of rank 0 writes the result before it ends"
    return result, False


def _logged(num_steps: int) -> OnLine:
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
    needed, there = workers[0], torch.cuda.device_count()
    is_elsewhere = workers[1] > 1 and named_cluster() is not None
    check_compile(train.compile, "cpu" if train.device == "cpu" or not (there or is_elsewhere) else "cuda")
    if train.device == "cuda" and there < needed and not is_elsewhere:
        raise UserError(
            f"train.device=cuda needs a GPU per worker: {needed}. torch finds {there} on this machine; see tokenfree "
            "doctor, or give auto"
        )


def _train(job: Job, workers: tuple[int, int], on_line: OnLine) -> None:
    if workers[1] > 1:
        from tokenfree.train.ray.child import work_on_ray

        work_on_ray(job, workers, on_line)
        return
    device = "cuda" if torch.cuda.is_available() and job.recipe.train.device != "cpu" else "cpu"
    threads = job.recipe.train.threads or min(cores(), torch.get_num_threads())
    work(job, device=device, threads=threads, on_line=on_line)
