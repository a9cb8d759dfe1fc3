"""One worker of a run from start to finish: restore, train, validate, save, record.

Only the worker of rank 0 writes to the run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import gc
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tokenfree.core.errors import JobError, StoppedError, UserError
from tokenfree.core.files import write_atomically
from tokenfree.core.storage import Storage
from tokenfree.train.data.loader import batch_of
from tokenfree.train.loop.losses import Incident, NotANumber, Spike, checked_validation
from tokenfree.train.loop.parallel import barrier, broadcast, gather
from tokenfree.train.loop.precision import uses_bfloat16
from tokenfree.train.loop.stopping import Stop, stop_on_signals
from tokenfree.train.loop.trainer import Job, TrainingLoop
from tokenfree.train.runs.checkpoints import CheckpointState, CheckpointWriter, RunProgress, checkpoint_name
from tokenfree.train.runs.config import INCIDENT
from tokenfree.train.runs.metrics import Line, OnLine, Recorder
from tokenfree.train.runs.provenance import machine
from tokenfree.train.runs.run import Run
from tokenfree.train.torch_state import default_settings


def save_incident(
    run: Path, incident: Incident, *, left_out: Iterable[int] = (), checkpoint: int | None = None
) -> Path:
    folder = run / "incidents"
    folder.mkdir(exist_ok=True)
    path = folder / f"batch_{incident.batch:08d}.json"
    record = {
        "kind": incident.kind,
        "step": incident.step,
        "batch": incident.batch,
        "loss": incident.loss if math.isfinite(incident.loss) else None,
        "sample_ids": incident.sample_ids,
        "checkpoint": checkpoint,
        "left_out": sorted(left_out),
    }
    write_atomically(path, json.dumps(record) + "\n")
    return path


def roll_backs(run: Path) -> list[dict[str, Any]]:
    """Return the records of incidents after which training returned to a checkpoint, in the order of batches."""
    paths = sorted((run / "incidents").glob("batch_*.json"))
    storage = Storage.at(str(run / "incidents"))
    records = [INCIDENT.json(storage, path.name) for path in paths]
    return [record for record in records if record["checkpoint"] is not None]


def batches_to_leave_out(
    batch: int, first: int, checkpoint: int, previous: list[dict[str, Any]]
) -> list[int]:
    """Return the batches to skip when training returns to step `checkpoint`, whose next batch was `first`."""
    again = any(record["checkpoint"] == checkpoint for record in previous)
    return list(range(first if again else batch, batch + 1))


class RunWriter:
    """A writer of the progress of `loop` to the folder of the run. `stack` closes its files."""

    def __init__(
        self, loop: TrainingLoop[Any], run: Run, stack: contextlib.ExitStack, on_line: OnLine | None
    ) -> None:
        self._loop, self._run, self._folder = loop, run, run.folder
        self._config = loop.recipe.train
        recorder = Recorder(self._folder, step=loop.step, on_line=on_line or (lambda line: None))
        self._recorder = stack.enter_context(recorder)
        saved = functools.partial(run.saved, keep=self._config.keep_checkpoints)
        self._checkpoints = stack.enter_context(CheckpointWriter(self._folder / "checkpoints", saved=saved))
        self._saved_at = time.monotonic()
        self._saved_step = loop.step  # the step that training would return to

    def begin(self, damaged: list[str], *, back: bool) -> None:
        """Record where training starts, or goes `back` to after an incident, and which checkpoints are damaged."""
        step, steps = self._loop.step, self._config.steps
        for warning in damaged:
            self._recorder.event("damaged_checkpoint", step=step, message=f"warning: {warning}")
        if back:
            left_out = sorted(self._loop.left_out)
            self._recorder.event("roll_back", step=step, left_out=left_out, workers=self._loop.world_size)
        elif step:
            message = f"resuming from the checkpoint of step {step:,} of {steps:,}"
            self._recorder.event(
                "resume", step=step, message=message, workers=self._loop.world_size, machine=machine()
            )
        else:
            self._recorder.event("start", step=0, workers=self._loop.world_size, machine=machine())
        precision, device = self._config.precision, self._loop.device
        if not back and uses_bfloat16(precision, device) and not uses_bfloat16("auto", device):
            message = (
                f"warning: train.precision is bfloat16, for which this {device.type} has no instructions. A step takes "
                "several times as long as in float32. Resume on another machine, or start a new run with auto."
            )
            self._recorder.event("slow_precision", step=step, message=message)
        self._run.publish()

    def record(self, line: Line) -> None:
        self._recorder.metrics(line)
        if "spike" in line:
            batch, size = batch_of(self._loop.step - 1, self._loop.left_out), self._config.global_batch
            spike = Spike(self._loop.step, batch, line["loss"], list(range(batch * size, (batch + 1) * size)))
            path = save_incident(self._folder, spike)
            message = f"the loss jumped to {spike.loss:.3f} at step {spike.step:,}; the samples are in {path}"
            self._recorder.event(spike.kind, step=spike.step, batch=batch, samples=str(path), message=message)

    def is_due(self) -> bool:
        seconds = self._config.checkpoint_every_seconds
        overdue = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return overdue or self._loop.step % self._config.checkpoint_every_steps == 0

    def save(
        self, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState, progress: RunProgress
    ) -> None:
        """Start writing a checkpoint of a current snapshot. Training continues in the meantime."""
        self._checkpoints.submit(
            parts, dataclasses.replace(state, progress=progress), best=progress.best_step
        )
        self._saved_at, self._saved_step = time.monotonic(), self._loop.step

    def note(self, incident: Incident, previous: list[dict[str, Any]], *, back: bool) -> None:
        """Save the samples of an incident and, if training goes `back`, the batches that are skipped from then on."""
        left_out, checkpoint, more = list[int](), None, dict[str, str]()
        if back:
            self.wait()
            checkpoint = self._saved_step
            first = batch_of(checkpoint, self._loop.left_out)
            left_out = batches_to_leave_out(incident.batch, first, checkpoint, previous)
            what = f"{incident.kind.replace('_', ' ')} at step {incident.step:,}"
            more["message"] = f"{what}; going back to step {checkpoint:,}, leaving out batches {left_out}"
        path = save_incident(self._folder, incident, left_out=left_out, checkpoint=checkpoint)
        self._recorder.event(
            incident.kind, step=incident.step, batch=incident.batch, samples=str(path), **more
        )
        self._run.publish()

    def wait(self) -> None:
        self._checkpoints.wait()

    def finish(self, outcome: Mapping[str, Any]) -> None:
        step = self._loop.step
        last = f"{self._run.name}/checkpoints/{checkpoint_name(step)}"
        result = {"steps": step, **outcome, "checkpoint": outcome.get("checkpoint", last)}
        write_atomically(self._folder / "result.json", json.dumps(result, indent=1) + "\n")
        self._recorder.event("complete", step=step)


class Stopped(StoppedError):
    """Training was stopped after `step`, whose checkpoint is written.

    With `resumes`, the workers will be restarted.
    """

    def __init__(self, reason: str, step: int, resumes: bool) -> None:
        super().__init__(reason, step, resumes, reason=reason)
        self.step, self.resumes = step, resumes

    def __str__(self) -> str:
        return f"stopped by {self.reason} after step {self.step}; the same command resumes it"


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
    """Train the run `job.run` from its current step to its end.

    Raises `Stopped` if a worker was asked to stop. `on_line` gets each recorded line, on rank 0. Without a
    `stop`, signals to this process stop training. Raises JobError if another process trains the run or
    training went back too often, UserError if the disk is full.
    """
    run = Run(job.run, job.owner)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_full_disk_explained())
        stack.enter_context(default_settings(threads=threads, prefer_deterministic=device == "cpu"))
        stop = stack.enter_context(stop_on_signals()) if stop is None else stop
        if rank == 0:
            stack.enter_context(run.written())
        make_loop = functools.partial(
            job.make_loop, rank=rank, world_size=world_size, device=device, stop=stop
        )
        attempt = functools.partial(_attempt, job, run, on_line)
        finished = attempt(make_loop(), back=False)
        while not finished:
            gc.collect()  # frees the previous model, which hooks of data parallelism hold in reference cycles
            finished = attempt(make_loop(), back=True)


def _attempt(job: Job, run: Run, on_line: OnLine | None, loop: TrainingLoop[Any], *, back: bool) -> bool:
    """Train to the end.

    Return False if training is to go `back` to the newest checkpoint after an incident.
    """
    config = job.recipe.train
    with contextlib.ExitStack() as stack:
        damaged: list[str] = []
        checkpoint = loop.restore_newest(run, damaged.append)
        if checkpoint is None and job.has_first_checkpoint:
            raise JobError(
                f"{job.run} began with given weights and has no sound checkpoint left; run the same command again: it "
                "loads them again"
            )
        previous = broadcast(roll_backs(run.folder) if loop.rank == 0 else [])
        loop.leave_out(batch for record in previous for batch in record["left_out"])
        writer = None
        if loop.rank == 0:
            writer = RunWriter(loop, run, stack, on_line)
            writer.begin(damaged, back=back)
        progress = (checkpoint.state.progress if checkpoint is not None else None) or RunProgress()
        try:
            progress = _Training(loop, progress, writer).run()
        except Incident as incident:
            rolls_back = {NotANumber.kind: config.on_nan, Spike.kind: config.on_spike}[
                incident.kind
            ] == "roll_back"
            back = rolls_back and len(previous) < config.max_roll_backs
            if writer is not None:
                writer.note(incident, previous, back=back)
            barrier()  # the first worker to exit ends the others, so all wait until the samples are written
            if rolls_back and not back:
                raise JobError(
                    f"training went back {len(previous)} times (train.max_roll_backs); {incident}"
                ) from None
            if not rolls_back:
                raise
            return False
        if writer is not None:
            writer.wait()
        outcome = loop.result(run, progress)
        if writer is not None:
            writer.finish(outcome)
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
            "command again: it resumes from the newest checkpoint"
        ) from error


class _Training:
    def __init__(self, loop: TrainingLoop[Any], progress: RunProgress, writer: RunWriter | None) -> None:
        self._loop, self._progress, self._writer = loop, progress, writer
        self._config = loop.recipe.train

    def run(self) -> RunProgress:
        try:
            self._loop.train_until(self._config.steps, self._after_step)
        except Stopped:
            if self._writer is not None:
                self._writer.wait()
            barrier()  # the first worker to exit ends the others, so all wait until the checkpoint is written
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
            asked = [stop for stop in gather(loop.stop) if stop]
            raise Stopped(asked[0].reason, loop.step, all(stop.resumes for stop in asked))

    def _validate(self) -> bool:
        step, source = self._loop.step, self._loop.source
        validation = checked_validation(step, self._loop.validate())
        if not validation:
            return False
        self._progress = self._progress.after_validation(step, validation, source.selection_loss(validation))
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
