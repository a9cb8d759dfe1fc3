"""What one worker of a run does from start to finish, alone or among others: restore, train, validate, save, record.

Only the worker of rank 0 writes to the run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from preprocess.errors import JobError, UserError
from train.checkpoints import Checkpoint, Writer, newest
from train.checkpoints import name as checkpoint_name
from train.config import PretrainRecipe
from train.loop import Loop, NotANumber
from train.metrics import Recorder
from train.run_folder import lock, write_atomically
from train.stopping import Stop, stop_on_signals

OnLine = Callable[[Mapping[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class Job:
    """What every worker of a run is given."""

    recipe: PretrainRecipe
    data: str
    run: str


class Stopped(JobError):
    """A signal ended training; the checkpoint of `step` is written."""

    def __init__(self, stop: Stop, step: int) -> None:
        name = stop.signal.name if stop.signal is not None else "a signal"
        super().__init__(f"stopped by {name} after step {step}; the same command goes on from there")


@dataclasses.dataclass
class Tally:
    """What a checkpoint carries of the run besides the training state."""

    loss: float = float("nan")
    characters: int = 0
    seconds: float = 0.0
    validation: dict[str, float] | None = None
    validated_at: int = -1
    best_step: int | None = None
    best_loss: float = float("inf")


def work(
    job: Job,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: str = "cpu",
    threads: int | None = None,
    on_line: OnLine | None = None,
) -> None:
    """Bring the run `job.run` to its end from wherever it stands; `on_line` gets the lines that are recorded.

    `threads` is for the arithmetic; None leaves it to torch, which takes OMP_NUM_THREADS or all CPUs of the process.

    Raises:
        NotANumber: the loss was not a number; the samples are in `<run>/nan_step_XXXXXXXX.json`.
        Stopped: SIGINT or SIGTERM came.
        JobError, UserError: see `Loop`.
    """
    run = Path(job.run)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_full_disk_explained())
        stack.enter_context(_arithmetic(threads, deterministic=device == "cpu"))
        stop = stack.enter_context(stop_on_signals())
        if rank == 0:  # a worker of an earlier, killed command may live a moment longer than that command
            held = JobError(f"another process still trains {run}; end it and run the same command again")
            stack.enter_context(lock(run / "lock.worker", seconds=60, held=held))
        loop = Loop(job.recipe, job.data, rank=rank, world_size=world_size, device=device)
        damaged: list[str] = []
        checkpoint = _agree(newest(run / "checkpoints", damaged.append) if rank == 0 else None, world_size)
        tally = Tally()
        if checkpoint is not None:
            loop.load(checkpoint)
            tally = Tally(**checkpoint.state["tally"])
        scribe = _Scribe(loop, job, tally, stack, on_line) if rank == 0 else None
        if scribe is not None:
            scribe.begin(damaged)
        try:
            _train(loop, tally, scribe, stop)
        except NotANumber as error:
            if scribe is not None:
                scribe.save_samples(error)
            raise
        if scribe is not None:
            scribe.finish()


@contextlib.contextmanager
def _full_disk_explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise UserError(
            f"cannot write {error.filename or 'to the run folder'}: {error.strerror}; make room, then run the same "
            "command again: it goes on from the newest checkpoint"
        ) from error


@contextlib.contextmanager
def _arithmetic(threads: int | None, *, deterministic: bool) -> Iterator[None]:
    """Fix what the results of this process depend on: the number of threads and the choice of kernels."""
    before = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    if threads is not None:
        torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1], warn_only=before[2])


def _agree(checkpoint: Checkpoint | None, world_size: int) -> Checkpoint | None:
    """The checkpoint that rank 0 found, on all workers."""
    box = [checkpoint]
    if world_size > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def _train(loop: Loop, tally: Tally, scribe: _Scribe | None, stop: Stop) -> None:
    config = loop.recipe.train

    def after_step(line: Mapping[str, float]) -> None:
        last = loop.step == config.steps
        tally.loss = line["loss"]
        tally.characters += int(line["characters"])
        tally.seconds += line["seconds"]
        if scribe is not None:
            scribe.record(line)
        if last or loop.step % config.validate_every_steps == 0:
            tally.validation, tally.validated_at = loop.validate(), loop.step
            if tally.validation["validation_loss"] < tally.best_loss:
                tally.best_step, tally.best_loss = loop.step, tally.validation["validation_loss"]
            if scribe is not None:
                scribe.record({"step": loop.step, **tally.validation})
        if scribe is not None and (last or stop or scribe.is_due()):
            scribe.save()
        if stop and not last:
            raise Stopped(stop, loop.step)

    try:
        loop.train_until(config.steps, after_step)
    except Stopped:
        if scribe is not None:
            scribe.wait()
        raise


class _Scribe:
    """The writing side of rank 0."""

    def __init__(self, loop: Loop, job: Job, tally: Tally, stack: contextlib.ExitStack, on_line: OnLine | None) -> None:
        self._loop, self._tally = loop, tally
        self._run = Path(job.run)
        self._config = job.recipe.train
        self._on_line = on_line or (lambda line: None)
        self._recorder = stack.enter_context(Recorder(self._run, step=loop.step, on_line=self._on_line))
        self._writer = stack.enter_context(Writer(self._run / "checkpoints", keep=self._config.keep_checkpoints))
        self._saved_at = time.monotonic()

    def begin(self, damaged: list[str]) -> None:
        """Say where training starts, and which checkpoints could not be used."""
        step, steps = self._loop.step, self._config.steps
        for warning in damaged:
            self._recorder.event("damaged_checkpoint", step=step, message=f"warning: {warning}")
        if step:
            message = f"going on from the checkpoint of step {step:,} of {steps:,}"
            self._recorder.event("resume", step=step, message=message, workers=self._loop.world_size)
        else:
            self._recorder.event("start", step=0, workers=self._loop.world_size)

    def record(self, line: Mapping[str, Any]) -> None:
        self._recorder.metrics(line)

    def is_due(self) -> bool:
        """Whether a checkpoint is, by step or by time."""
        seconds = self._config.checkpoint_every_seconds
        overdue = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return overdue or self._loop.step % self._config.checkpoint_every_steps == 0

    def save(self) -> None:
        """Start writing a checkpoint of this moment; training goes on meanwhile."""
        parts, state = self._loop.snapshot()
        state["tally"] = dataclasses.asdict(self._tally)
        self._writer.submit(parts, state, best=self._tally.best_step)
        self._saved_at = time.monotonic()

    def save_samples(self, error: NotANumber) -> None:
        path = self._run / f"nan_step_{error.step:08d}.json"
        write_atomically(path, json.dumps({"step": error.step, "sample_ids": error.sample_ids}) + "\n")
        self._recorder.event("not_a_number", step=error.step, samples=str(path))

    def wait(self) -> None:
        """Wait until the last checkpoint is written."""
        self._writer.wait()

    def finish(self) -> None:
        """Wait for the last checkpoint and write the result."""
        self.wait()
        step, tally = self._loop.step, self._tally
        assert tally.validation is not None, "the last step is always validated before its checkpoint is written"
        baseline = self._loop.unigram()
        validation = dict(tally.validation)
        result = {
            "steps": step,
            "loss": tally.loss,
            **{name: validation.pop(name) for name in ("validation_loss", "validation_accuracy", "validation_targets")},
            "validation_means": validation,
            "symbol": None if baseline is None else baseline.symbol,
            "unigram_entropy": None if baseline is None else baseline.entropy,
            "unigram_cross_entropy": None if baseline is None else baseline.cross_entropy,
            "best_step": tally.best_step,
            "characters": tally.characters,
            "seconds": round(tally.seconds, 3),
            "checkpoint": str(self._run / "checkpoints" / checkpoint_name(step)),
        }
        write_atomically(self._run / "result.json", json.dumps(result, indent=1) + "\n")
        self._recorder.event("complete", step=step)
