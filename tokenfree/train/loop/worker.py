"""The training loop (`train`), and a worker of a run from start to finish (`work`).

A trial of a sweep calls `train` as well. Of the workers of a run, only that of rank 0 writes to its folder.
"""

import contextlib
import dataclasses
import errno
import functools
import gc
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenfree.core.errors import JobError, StoppedError, UserError
from tokenfree.core.files import write_atomically
from tokenfree.core.signals import Stop, stop_on_signals
from tokenfree.core.storage import Storage
from tokenfree.train.data.loader import batch_of
from tokenfree.train.loop.parallel import barrier, broadcast, gather
from tokenfree.train.loop.step import Incident, NotANumber, Spike, checked_validation
from tokenfree.train.loop.trainer import Job, TrainingLoop
from tokenfree.train.runs.checkpoints import CheckpointWriter, RunProgress, checkpoint_name
from tokenfree.train.runs.formats import INCIDENT
from tokenfree.train.runs.metrics import Line, OnLine, Recorder
from tokenfree.train.runs.provenance import machine
from tokenfree.train.runs.run import Run
from tokenfree.train.torch_state import default_settings, uses_bfloat16


class LoopFiles:
    """Where a loop loads and saves checkpoints, and records metrics. By default it does neither."""

    loop: TrainingLoop[Any]

    def load(self) -> RunProgress:
        """Load the newest checkpoint, if there is one, and return the progress so far."""
        return RunProgress()

    def record(self, line: Line) -> None:
        """Record a line of metrics."""

    def is_due(self) -> bool:
        """Return True if a checkpoint is due in the middle of training."""
        return False

    def save(self, progress: RunProgress) -> None:
        """Save a checkpoint, in the background if possible. Sharded workers must all call this."""
        if self.loop.parallel.is_sharded:
            self.loop.snapshot()

    def report(self, values: Line, *, is_due: bool) -> None:
        """Report `values` of the last step to what runs the workers, if `is_due`. All workers call this."""

    def wait(self) -> None:
        """Wait until everything is written."""


class Ending(NamedTuple):
    progress: RunProgress
    stops: Sequence[Stop] = ()  # the requests that ended training early


def train(
    loop: TrainingLoop[Any],
    files: LoopFiles,
    progress: RunProgress | None = None,
    *,
    until: int,
    seconds: float = math.inf,
    validate_every: int,
    patience: int | None = None,
) -> Ending:
    """Train until step `until`, or until all steps took `seconds`, or until a worker is asked to stop.

    Training also ends when `patience` validations in a row were not better than the best one.

    Without `progress`, load the newest checkpoint; else continue from the current state of `loop`. The last
    step is always saved. It is validated unless a request made it the last one. Raises Incident for a bad
    loss, and JobError for a validation that is not finite.
    """
    if progress is None:
        progress = files.load()
    stops: Sequence[Stop] = ()
    max_steps_after_best = math.inf if patience is None else patience * validate_every
    # A resumed run may have stopped in its last step.
    until = loop.step if progress.steps_after_best(loop.step) >= max_steps_after_best else until
    with contextlib.closing(loop.steps(until)) as lines:
        for line in lines:
            stopping = loop.stopping
            progress = progress.after_step(line)
            files.record(line)
            # Only trials have a limit of seconds. Several workers would measure different ones.
            is_last = loop.step == until or progress.seconds >= seconds

            is_best = False
            validation = loop.validate() if is_last or loop.step % validate_every == 0 else None
            if validation:
                selection_loss = loop.source.selection_loss(checked_validation(loop.step, validation))
                progress = progress.after_validation(loop.step, validation, selection_loss)
                files.record({"step": loop.step, **validation})
                is_best = progress.best_step == loop.step
                is_last |= progress.steps_after_best(loop.step) >= max_steps_after_best

            must_save = is_last or stopping or (is_best and loop.source.keeps_best)
            if loop.parallel.broadcast_flag(must_save or files.is_due()):
                files.save(progress)
            files.report({"loss": progress.loss, **(validation or {})}, is_due=must_save or bool(validation))

            if stopping and not is_last:
                stops = [stop for stop in gather(loop.stop) if stop]
            if stopping or is_last:
                break
    files.wait()
    return Ending(progress, stops)


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
    on_report: OnLine | None = None,
    stop: Stop | None = None,
) -> None:
    """Train the run `job.run` from its current step to its end.

    Raises `Stopped` if a worker was asked to stop. `on_line` gets each recorded line, on rank 0.
    `on_report` gets the progress after validations and checkpoints, on all ranks, at the same steps. Without
    a `stop`, signals to this process stop training. Raises JobError if another process trains the run or
    training went back too often, UserError if the disk is full.
    """
    run = Run(job.run, job.owner)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_full_disk_explained())
        stack.enter_context(default_settings(threads=threads, prefer_deterministic=device == "cpu"))
        stop = stack.enter_context(stop_on_signals()) if stop is None else stop
        if rank == 0:
            stack.enter_context(run.written())
        back = False
        while not _attempt(
            job,
            run,
            on_line,
            on_report,
            job.make_loop(rank=rank, world_size=world_size, device=device, stop=stop),
            back=back,
        ):
            back = True
            # Frees the previous model, which hooks of data parallelism hold in reference cycles.
            gc.collect()


def _attempt(
    job: Job,
    run: Run,
    on_line: OnLine | None,
    on_report: OnLine | None,
    loop: TrainingLoop[Any],
    *,
    back: bool,
) -> bool:
    """Train to the end. Return False if training must go back to the newest checkpoint after an incident.

    `back` is whether it has already gone back.
    """
    config = loop.recipe.train
    with contextlib.ExitStack() as stack:
        files = (RunFiles if loop.rank else RunWriter)(job, run, loop, stack, on_line, on_report, back=back)
        try:
            ending = train(
                loop,
                files,
                until=config.steps,
                validate_every=config.validate_every_steps,
                patience=config.patience,
            )
        except Incident as incident:
            files.roll_back(incident)
            return False
        if ending.stops:
            # The first worker to exit ends the others, so all wait until the checkpoint is written.
            barrier()
            raise Stopped(ending.stops[0].reason, loop.step, all(stop.resumes for stop in ending.stops))
        files.finish(loop.result(run, ending.progress))
    return True


class RunFiles(LoopFiles):
    """The files of a run as workers other than that of rank 0 use them, which only read."""

    # Step of the newest checkpoint, to which training would return, on rank 0.
    _saved_step = 0

    def __init__(
        self,
        job: Job,
        run: Run,
        loop: TrainingLoop[Any],
        stack: contextlib.ExitStack,
        on_line: OnLine | None,
        on_report: OnLine | None,
        *,
        back: bool,
    ) -> None:
        self.loop, self._job, self._run, self._stack = loop, job, run, stack
        self._on_line, self._back, self._config = on_line, back, loop.recipe.train
        self._on_report = on_report
        self._damaged: list[str] = []  # warnings
        self._roll_backs: list[dict[str, Any]] = []

    def load(self) -> RunProgress:
        newest = broadcast(self._run.newest(self._damaged.append) if self.loop.rank == 0 else None)
        if newest is not None:
            self.loop.load(self._run.here(newest))
        elif self._job.has_first_checkpoint:
            raise JobError(
                f"{self._job.run} began with given weights and has no sound checkpoint left; run the same command "
                "again: it loads them again"
            )
        self._roll_backs = broadcast(roll_backs(self._run.folder) if self.loop.rank == 0 else [])
        self.loop.leave_out(batch for record in self._roll_backs for batch in record["left_out"])
        return (None if newest is None else newest.state.progress) or RunProgress()

    def report(self, values: Line, *, is_due: bool) -> None:
        step = self.loop.step
        # Only rank 0 knows when a checkpoint is due by time. The next report names such a checkpoint.
        if self._on_report and (is_due or step % self._config.checkpoint_every_steps == 0):
            self._on_report({"step": step, **values, "checkpoint": checkpoint_name(self._saved_step)})

    def roll_back(self, incident: Incident) -> None:
        """Record an incident, and return if training goes back to the newest checkpoint.

        Raises JobError or the incident if it does not."""
        action = {NotANumber.kind: self._config.on_nan, Spike.kind: self._config.on_spike}[incident.kind]
        times = len(self._roll_backs)
        back = action == "roll_back" and times < self._config.max_roll_backs
        self.note(incident, back=back)
        # The first worker to exit ends the others, so all wait until the samples are written.
        barrier()
        if action != "roll_back":
            raise incident
        if not back:
            raise JobError(f"training went back {times} times (train.max_roll_backs); {incident}") from None

    def note(self, incident: Incident, *, back: bool) -> None:
        """Save the samples of an incident and, if training goes `back`, the batches to skip."""

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """Write the result."""


class RunWriter(RunFiles):
    """The files of a run as the worker of rank 0 uses them, which writes its progress."""

    def load(self) -> RunProgress:
        progress = super().load()
        self._folder, on_line = self._run.folder, self._on_line or (lambda line: None)
        self._recorder = self._stack.enter_context(
            Recorder(self._folder, step=self.loop.step, on_line=on_line)
        )
        self._checkpoints = self._stack.enter_context(
            CheckpointWriter(
                self._folder / "checkpoints",
                saved=functools.partial(self._run.saved, keep=self._config.keep_checkpoints),
            )
        )
        self._saved_at, self._saved_step = time.monotonic(), self.loop.step
        self._begin()
        return progress

    def _begin(self) -> None:
        step, steps = self.loop.step, self._config.steps
        for warning in self._damaged:
            self._recorder.event("damaged_checkpoint", step=step, message=f"warning: {warning}")
        if self._back:
            self._recorder.event(
                "roll_back",
                step=step,
                left_out=sorted(self.loop.left_out),
                workers=self.loop.world_size,
            )
        elif step:
            self._recorder.event(
                "resume",
                step=step,
                message=f"resuming from the checkpoint of step {step:,} of {steps:,}",
                workers=self.loop.world_size,
                machine=machine(),
            )
        else:
            self._recorder.event("start", step=0, workers=self.loop.world_size, machine=machine())
        precision, device = self._config.precision, self.loop.device
        if not self._back and uses_bfloat16(precision, device) and not uses_bfloat16("auto", device):
            self._recorder.event(
                "slow_precision",
                step=step,
                message=f"warning: train.precision is bfloat16, for which this {device.type} has no instructions. A "
                "step takes several times as long as in float32. Resume on another machine, or start a new run with "
                "auto.",
            )
        self._run.publish()

    def record(self, line: Line) -> None:
        self._recorder.metrics(line)
        if "spike" in line:
            batch, size = batch_of(self.loop.step - 1, self.loop.left_out), self._config.global_batch
            spike = Spike(self.loop.step, batch, line["loss"], list(range(batch * size, (batch + 1) * size)))
            path = save_incident(self._folder, spike)
            self._recorder.event(
                spike.kind,
                step=spike.step,
                batch=batch,
                samples=str(path),
                message=f"the loss jumped to {spike.loss:.3f} at step {spike.step:,}; the samples are in {path}",
            )

    def is_due(self) -> bool:
        seconds = self._config.checkpoint_every_seconds
        overdue = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return overdue or self.loop.step % self._config.checkpoint_every_steps == 0

    def save(self, progress: RunProgress) -> None:
        parts, state = self.loop.snapshot()
        self._checkpoints.submit(
            parts, dataclasses.replace(state, progress=progress), best=progress.best_step
        )
        self._saved_at, self._saved_step = time.monotonic(), self.loop.step

    def note(self, incident: Incident, *, back: bool) -> None:
        left_out, checkpoint, more = list[int](), None, dict[str, str]()
        if back:
            self.wait()
            checkpoint = self._saved_step
            first = batch_of(checkpoint, self.loop.left_out)
            left_out = batches_to_leave_out(incident.batch, first, checkpoint, self._roll_backs)
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
        step = self.loop.step
        last = f"{self._run.name}/checkpoints/{checkpoint_name(step)}"
        result = {"steps": step, **outcome, "checkpoint": outcome.get("checkpoint", last)}
        write_atomically(self._folder / "result.json", json.dumps(result, indent=1) + "\n")
        self._recorder.event("complete", step=step)


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
    storage = Storage.at(str(run / "incidents"))
    records = [INCIDENT.json(storage, path.name) for path in sorted(run.glob("incidents/batch_*.json"))]
    return [record for record in records if record["checkpoint"] is not None]


def batches_to_leave_out(
    batch: int, first: int, checkpoint: int, previous: list[dict[str, Any]]
) -> list[int]:
    """Return the batches to skip when training returns to step `checkpoint`, whose next batch was `first`."""
    again = any(record["checkpoint"] == checkpoint for record in previous)
    return list(range(first if again else batch, batch + 1))


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
