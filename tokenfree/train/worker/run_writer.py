"""The writing side of a run, which the worker of rank 0 has: metrics, events, checkpoints, incidents, the result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tokenfree.preprocess.common.local_files import write_atomically
from tokenfree.train.data.loader import batch_of
from tokenfree.train.loop.loss_spikes import Incident, Spike
from tokenfree.train.loop.training_loop import TrainingLoop
from tokenfree.train.machine.provenance import machine
from tokenfree.train.runs.checkpoint_state import CheckpointState, RunProgress
from tokenfree.train.runs.checkpoints import CheckpointWriter
from tokenfree.train.runs.checkpoints import name as checkpoint_name
from tokenfree.train.runs.metrics import Line, OnLine, Recorder
from tokenfree.train.runs.run import Run
from tokenfree.train.worker.incident_files import batches_to_leave_out, save_incident
from tokenfree.train.worker.step_trace import StepTrace


class RunWriter:
    """Writes what `loop` comes to into the folder of the run.

    Args:
        stack: closes its files.
        on_line: gets each line that is recorded.
        profile: leave a trace of a few steps, see `tokenfree.train.worker.step_trace`.
    """

    def __init__(
        self,
        loop: TrainingLoop[Any],
        run: Run,
        stack: contextlib.ExitStack,
        on_line: OnLine | None,
        *,
        profile: bool = False,
    ) -> None:
        self._loop, self._run, self._folder = loop, run, run.folder
        self._config = loop.recipe.train
        recorder = Recorder(self._folder, step=loop.step, on_line=on_line or (lambda line: None))
        self._recorder = stack.enter_context(recorder)
        saved = functools.partial(run.saved, keep=self._config.keep_checkpoints)
        self._checkpoints = stack.enter_context(CheckpointWriter(self._folder / "checkpoints", saved=saved))
        self._saved_at = time.monotonic()
        self._saved_step = loop.step  # where training would go back to
        self._trace: StepTrace | None = None
        if profile:
            trace = StepTrace(self._folder / "profile", step=loop.step, on_written=self._note_trace)
            self._trace = stack.enter_context(trace)

    def begin(self, damaged: list[str], *, back: bool) -> None:
        """Say where training starts (or, after an incident, goes `back` to), and which checkpoints are damaged.

        Raises:
            JobError: the run was taken over by another command.
        """
        step, steps = self._loop.step, self._config.steps
        for warning in damaged:
            self._recorder.event("damaged_checkpoint", step=step, message=f"warning: {warning}")
        if back:
            left_out = sorted(self._loop.left_out)
            self._recorder.event("roll_back", step=step, left_out=left_out, workers=self._loop.world_size)
        elif step:
            message = f"going on from the checkpoint of step {step:,} of {steps:,}"
            self._recorder.event("resume", step=step, message=message, workers=self._loop.world_size, machine=machine())
        else:
            self._recorder.event("start", step=0, workers=self._loop.world_size, machine=machine())
        self._run.publish()

    def record(self, line: Line) -> None:
        """Record a line of a step or of a validation, and the samples of a step whose loss jumped."""
        self._recorder.metrics(line)
        if "seconds" in line and self._trace is not None:
            self._trace.step(self._loop.step)
        if "spike" in line:
            batch, size = batch_of(self._loop.step - 1, self._loop.left_out), self._config.global_batch
            spike = Spike(self._loop.step, batch, line["loss"], list(range(batch * size, (batch + 1) * size)))
            path = save_incident(self._folder, spike)
            message = f"the loss jumped to {spike.loss:.3f} at step {spike.step:,}; the samples are in {path}"
            self._recorder.event(spike.kind, step=spike.step, batch=batch, samples=str(path), message=message)

    def is_due(self) -> bool:
        """Whether a checkpoint is, by step or by time."""
        seconds = self._config.checkpoint_every_seconds
        overdue = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return overdue or self._loop.step % self._config.checkpoint_every_steps == 0

    def save(self, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState, progress: RunProgress) -> None:
        """Start writing a checkpoint of a snapshot of this moment; training goes on meanwhile.

        Raises:
            UserError: the checkpoint before this one could not be written.
        """
        self._checkpoints.submit(parts, dataclasses.replace(state, progress=progress), best=progress.best_step)
        self._saved_at, self._saved_step = time.monotonic(), self._loop.step

    def note(self, incident: Incident, before: list[dict[str, Any]], *, back: bool) -> None:
        """Save the samples of an incident; and where training goes `back`, which batches are left out from now on.

        `before` are the records of the incidents after which training went back already.

        Raises:
            JobError: the run was taken over by another command.
            UserError: the last checkpoint could not be written.
        """
        if not back:
            path = save_incident(self._folder, incident)
            self._recorder.event(incident.kind, step=incident.step, batch=incident.batch, samples=str(path))
            self._run.publish()
            return
        self.wait()
        checkpoint = self._saved_step
        first = batch_of(checkpoint, self._loop.left_out)
        left_out = batches_to_leave_out(incident.batch, first, checkpoint, before)
        path = save_incident(self._folder, incident, left_out=left_out, checkpoint=checkpoint)
        what = "is not a number" if incident.kind == "not_a_number" else f"jumped to {incident.loss:.3f}"
        batches = f"batch {incident.batch:,}" if len(left_out) == 1 else f"batches {first:,} to {incident.batch:,}"
        message = f"the loss {what} at step {incident.step:,}; going back to step {checkpoint:,}, leaving out {batches}"
        self._recorder.event(
            incident.kind, step=incident.step, batch=incident.batch, samples=str(path), message=message
        )
        self._run.publish()

    def wait(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            UserError: it could not be written.
        """
        self._checkpoints.wait()

    def finish(self, found: Mapping[str, Any]) -> None:
        """Write the result, result.json, with what was `found` (see `Source.result`)."""
        step = self._loop.step
        last = f"{self._run.name}/checkpoints/{checkpoint_name(step)}"
        result = {"steps": step, **found, "checkpoint": found.get("checkpoint", last)}
        write_atomically(self._folder / "result.json", json.dumps(result, indent=1) + "\n")
        self._recorder.event("complete", step=step)

    def _note_trace(self, path: Path) -> None:
        self._recorder.event(
            "profile", step=self._loop.step, trace=str(path), message=f"profile of a few steps: {path}"
        )
