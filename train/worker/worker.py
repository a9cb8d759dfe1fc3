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
from typing import Any

import torch
import torch.distributed as dist

from preprocess.errors import JobError, UserError
from train.config import PretrainRecipe
from train.incidents import Incident, NotANumber, Spike, roll_backs
from train.loop import Loop
from train.run_folder import RunFolder, lock, run_at
from train.scribe import OnLine, Scribe, Tally
from train.stopping import Stop, stop_on_signals


@dataclasses.dataclass(frozen=True)
class Job:
    """What every worker of a run is given."""

    recipe: PretrainRecipe
    data: str
    run: str
    profile: bool = False  # leave a trace of a few steps
    owner: str | None = None  # see `train.run_folder.run_at`


class Stopped(JobError):
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
    """Bring the run `job.run` to its end from wherever it stands; `on_line` gets the lines that are recorded.

    `threads` is for the arithmetic; None leaves it to torch, which takes OMP_NUM_THREADS or all CPUs of the process.
    `stop` is what asks for an end; None: the signals that this process gets.

    Raises:
        NotANumber, Spike: the loss was not a number, or jumped; see train/incidents.py.
        Stopped: one of the workers was asked to stop.
        JobError, UserError: see `Loop`.
    """
    place = run_at(job.run, job.owner)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_full_disk_explained())
        stack.enter_context(_arithmetic(threads, deterministic=device == "cpu"))
        stop = stack.enter_context(stop_on_signals()) if stop is None else stop
        if rank == 0:  # a worker of an earlier, killed command may live a moment longer than that command
            held = JobError(f"another process still trains {place.name}; end it and run the same command again")
            place.folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock(place.folder / "lock.worker", seconds=60, held=held))
            place.begin()
        attempt = functools.partial(_attempt, job, place, rank=rank, world_size=world_size, device=device, stop=stop)
        finished = attempt(on_line, back=False)
        while not finished:
            gc.collect()  # of the model before, which hooks of data parallelism hold in cycles
            finished = attempt(on_line, back=True)
        if rank == 0:
            place.finish()


def _attempt(
    job: Job,
    place: RunFolder,
    on_line: OnLine | None,
    *,
    rank: int,
    world_size: int,
    device: str,
    stop: Stop,
    back: bool,
) -> bool:
    """Train from the newest checkpoint to the end; false after an incident for which training is to go `back` to it."""
    config = job.recipe.train
    with contextlib.ExitStack() as stack:
        loop = Loop(job.recipe, job.data, rank=rank, world_size=world_size, device=device)
        loop.stop = stop
        damaged: list[str] = []
        found = (place.newest(damaged.append), roll_backs(place.folder)) if rank == 0 else None
        checkpoint, before = _agree(found, world_size)
        tally = Tally()
        if checkpoint is not None:
            loop.load(place.here(checkpoint))
            tally = Tally(**checkpoint.state["tally"])
        loop.leave_out(batch for record in before for batch in record["left_out"])
        scribe = Scribe(loop, place, tally, stack, on_line, profile=job.profile and not back) if rank == 0 else None
        if scribe is not None:
            scribe.begin(damaged, back=back)
        try:
            _train(loop, tally, scribe)
        except Incident as incident:
            wished = {NotANumber.kind: config.on_nan, Spike.kind: config.on_spike}[incident.kind] == "roll_back"
            back = wished and len(before) < config.max_roll_backs
            if scribe is not None:
                scribe.note(incident, before, back=back)
            if world_size > 1:  # the first worker to leave ends the others: none may before the samples are written
                dist.barrier()
            if wished and not back:
                raise JobError(f"training went back {len(before)} times (train.max_roll_backs); {incident}") from None
            if not wished:
                raise
            return False
        if scribe is not None:
            scribe.finish()
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


def _agree(found: Any, world_size: int) -> Any:
    """What rank 0 found, on all workers."""
    box = [found]
    if world_size > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def _train(loop: Loop, tally: Tally, scribe: Scribe | None) -> None:
    config = loop.recipe.train

    def after_step(line: Mapping[str, float]) -> None:
        last = loop.step == config.steps
        stopping = loop.stopping if loop.world_size > 1 else bool(loop.stop)
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
        due = loop.parallel.agree(last or stopping or (scribe is not None and scribe.is_due()))
        if due and (scribe is not None or loop.parallel.together):
            snapshot = loop.snapshot()
            if scribe is not None:
                scribe.save(*snapshot)
        if stopping and not last:
            raise _stopped(loop)

    try:
        loop.train_until(config.steps, after_step)
    except Stopped:
        if scribe is not None:
            scribe.wait()
        if loop.world_size > 1:  # the first worker to leave ends the others: none may before the checkpoint is written
            dist.barrier()
        raise


def _stopped(loop: Loop) -> Stopped:
    """What to raise on all workers, of which some were asked to stop."""
    stops: list[Any] = [loop.stop]
    if loop.world_size > 1:
        stops *= loop.world_size
        dist.all_gather_object(stops, loop.stop)
    asked = [stop for stop in stops if stop]
    return Stopped(asked[0].reason, loop.step, all(stop.goes_on for stop in asked))
