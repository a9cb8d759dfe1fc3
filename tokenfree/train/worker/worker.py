"""What one worker of a run does from start to finish, alone or among others: restore, train, validate, save, record.

Only the worker of rank 0 writes to the run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import gc
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch

from tokenfree.preprocess.common.errors import JobError, StoppedError, UserError
from tokenfree.train.config import PretrainRecipe, Recipe
from tokenfree.train.loop.loop import Loop
from tokenfree.train.loop.loss_spikes import Incident, NotANumber, Spike, checked_validation
from tokenfree.train.loop.stopping import Stop, stop_on_signals
from tokenfree.train.loop.training_loop import TrainingLoop
from tokenfree.train.machine.determinism import set_determinism
from tokenfree.train.mixture.mixture import Data
from tokenfree.train.parallel.collectives import barrier, broadcast, gather
from tokenfree.train.runs.checkpoint_state import RunProgress
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run
from tokenfree.train.worker.incident_files import roll_backs
from tokenfree.train.worker.run_writer import RunWriter


class Job(Protocol):
    """What every worker of a run is given; it is pickled on its way."""

    @property
    def recipe(self) -> Recipe:
        """Of the run."""
        ...

    @property
    def run(self) -> str:
        """Path or address of the run."""
        ...

    @property
    def profile(self) -> bool:
        """Whether to leave a trace of a few steps."""
        ...

    @property
    def has_first_checkpoint(self) -> bool:
        """Whether the run begins with given weights, see train/start/."""
        ...

    @property
    def owner(self) -> str | None:
        """See `tokenfree.train.runs.locate.run_at`."""
        ...

    def make_loop(self, *, rank: int, world_size: int, device: str, stop: Stop) -> TrainingLoop[Any]:
        """The loop of one worker, fresh.

        Raises:
            UserError: there are no such data, or they are not for the recipe.
        """
        ...


@dataclasses.dataclass(frozen=True)
class TrainJob:
    """The `Job` of a pretraining run."""

    recipe: PretrainRecipe
    data: Data  # path or address of the data directory, or several
    run: str
    profile: bool = False
    has_first_checkpoint: bool = False
    owner: str | None = None

    def make_loop(self, *, rank: int, world_size: int, device: str, stop: Stop) -> Loop:
        """See `Job.make_loop`."""
        return Loop(self.recipe, self.data, rank=rank, world_size=world_size, device=device, stop=stop)


class Stopped(StoppedError):
    """Training was stopped after `step`, whose checkpoint is written. Workers that are to `go on` are started again."""

    def __init__(self, reason: str, step: int, goes_on: bool) -> None:
        super().__init__(reason, step, goes_on)
        self.reason, self.step, self.goes_on = reason, step, goes_on

    def __str__(self) -> str:
        return f"stopped by {self.reason} after step {self.step}; the same command goes on from there"


def work(
    job: Job,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: str = "cpu",
    threads: int | None = None,
    on_line: OnLine | None = None,
    stop: Stop | None = None,
) -> None:
    """Bring the run `job.run` to its end from wherever it stands.

    Args:
        rank, world_size, device: see `Loop`.
        threads: for the arithmetic; None leaves it to torch, which takes OMP_NUM_THREADS or all CPUs of the process.
        on_line: gets the lines that are recorded, on rank 0.
        stop: what asks for an end; None: the signals that this process gets.

    Raises:
        NotANumber, Spike: the loss was not a number, or jumped; see train/loop/loss_spikes.py.
        Stopped: one of the workers was asked to stop.
        JobError: another process still trains the run, or training went back too often.
        UserError: the disk is full or cannot be written; and see `Loop`.
    """
    run = run_at(job.run, job.owner)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_full_disk_explained())
        stack.enter_context(_arithmetic(threads, deterministic=device == "cpu"))
        stop = stack.enter_context(stop_on_signals()) if stop is None else stop
        if rank == 0:
            stack.enter_context(run.written())
        make_loop = functools.partial(job.make_loop, rank=rank, world_size=world_size, device=device, stop=stop)
        attempt = functools.partial(_attempt, job, run, on_line)
        finished = attempt(make_loop(), back=False)
        while not finished:
            gc.collect()  # of the model before, which hooks of data parallelism hold in cycles
            finished = attempt(make_loop(), back=True)


def _attempt(job: Job, run: Run, on_line: OnLine | None, loop: TrainingLoop[Any], *, back: bool) -> bool:
    """Train from the newest checkpoint to the end; false after an incident for which training is to go `back` to it."""
    config = job.recipe.train
    with contextlib.ExitStack() as stack:
        damaged: list[str] = []
        checkpoint = loop.restore_newest(run, damaged.append)
        if checkpoint is None and job.has_first_checkpoint:
            raise JobError(
                f"{job.run} began with given weights and has no sound checkpoint left; run the same command again: it "
                "loads them again"
            )
        before = broadcast(roll_backs(run.folder) if loop.rank == 0 else [])
        loop.leave_out(batch for record in before for batch in record["left_out"])
        writer = None
        if loop.rank == 0:
            writer = RunWriter(loop, run, stack, on_line, profile=job.profile and not back)
            writer.begin(damaged, back=back)
        progress = (checkpoint.state.progress if checkpoint is not None else None) or RunProgress()
        try:
            progress = _Training(loop, progress, writer).run()
        except Incident as incident:
            wished = {NotANumber.kind: config.on_nan, Spike.kind: config.on_spike}[incident.kind] == "roll_back"
            back = wished and len(before) < config.max_roll_backs
            if writer is not None:
                writer.note(incident, before, back=back)
            barrier()  # the first worker that leaves ends the others: none may before the samples are written
            if wished and not back:
                raise JobError(f"training went back {len(before)} times (train.max_roll_backs); {incident}") from None
            if not wished:
                raise
            return False
        if writer is not None:
            writer.wait()
        found = loop.result(run, progress)
        if writer is not None:
            writer.finish(found)
    return True


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
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    if threads is not None:
        torch.set_num_threads(threads)
    set_determinism(int(deterministic))
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        set_determinism(before[1])


class _Training:
    """Training from where `loop` stands to the end, and what is due after a step; with a `writer` on rank 0."""

    def __init__(self, loop: TrainingLoop[Any], progress: RunProgress, writer: RunWriter | None) -> None:
        self._loop, self._progress, self._writer = loop, progress, writer
        self._config = loop.recipe.train

    def run(self) -> RunProgress:
        """How far the run has come in the end."""
        try:
            self._loop.train_until(self._config.steps, self._after_step)
        except Stopped:
            if self._writer is not None:
                self._writer.wait()
            barrier()  # the first worker that leaves ends the others: none may before the checkpoint is written
            raise
        return self._progress

    def _after_step(self, line: Mapping[str, float]) -> None:
        loop = self._loop
        last = loop.step == self._config.steps
        stopping = loop.stopping if loop.world_size > 1 else bool(loop.stop)
        self._progress = self._progress.after_step(line)
        if self._writer is not None:
            self._writer.record(line)
        is_best = (last or loop.step % self._config.validate_every_steps == 0) and self._validate()
        self._save_if_due(last or stopping or (is_best and loop.source.keeps_best))
        if stopping and not last:
            raise _stopped(loop)

    def _validate(self) -> bool:
        """Validate; whether the model is the best so far."""
        step, source = self._loop.step, self._loop.source
        validation = checked_validation(step, self._loop.validate())
        if not validation:
            return False
        self._progress = self._progress.after_validation(step, validation, source.badness(validation))
        if self._writer is not None:
            self._writer.record({"step": step, **validation})
        return self._progress.best_step == step

    def _save_if_due(self, in_any_case: bool) -> None:
        writer, parallel = self._writer, self._loop.parallel
        due = parallel.broadcast_flag(in_any_case or (writer is not None and writer.is_due()))
        if due and (writer is not None or parallel.is_sharded):
            parts, state = self._loop.snapshot()
            if writer is not None:
                writer.save(parts, state, self._progress)


def _stopped(loop: TrainingLoop[Any]) -> Stopped:
    """What to raise on all workers, of which some were asked to stop."""
    asked = [stop for stop in gather(loop.stop) if stop]
    return Stopped(asked[0].reason, loop.step, all(stop.goes_on for stop in asked))
