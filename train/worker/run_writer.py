"""The writing side of a run, which the worker of rank 0 has: metrics, events, checkpoints, incidents, the result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from train import incidents
from train.checkpoints import Writer
from train.checkpoints import name as checkpoint_name
from train.data.loader import batch_of
from train.incidents import Incident, Spike
from train.loop import Loop
from train.metrics import Recorder
from train.profiling import StepTrace
from train.run_folder import RunFolder, write_atomically

OnLine = Callable[[Mapping[str, Any]], None]


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


class Scribe:
    """Writes what `loop` comes to into the folder of the run. Its files are closed with `stack`.

    Args:
        profile: leave a trace of a few steps, see `train.profiling`.
    """

    def __init__(
        self,
        loop: Loop,
        place: RunFolder,
        tally: Tally,
        stack: contextlib.ExitStack,
        on_line: OnLine | None,
        *,
        profile: bool = False,
    ) -> None:
        run = place.folder
        self._loop, self._place, self._run, self._tally = loop, place, run, tally
        self._config = loop.recipe.train
        self._recorder = stack.enter_context(Recorder(run, step=loop.step, on_line=on_line or (lambda line: None)))
        saved = functools.partial(place.saved, keep=self._config.keep_checkpoints)
        self._writer = stack.enter_context(Writer(run / "checkpoints", saved=saved))
        self._saved_at = time.monotonic()
        self._saved_step = loop.step  # where training would go back to
        self._trace: StepTrace | None = None
        if profile:
            trace = StepTrace(run / "profile", step=loop.step, on_written=self._note_trace)
            self._trace = stack.enter_context(trace)

    def begin(self, damaged: list[str], *, back: bool) -> None:
        """Say where training starts (or, after an incident, goes `back` to), and which checkpoints are damaged."""
        step, steps = self._loop.step, self._config.steps
        for warning in damaged:
            self._recorder.event("damaged_checkpoint", step=step, message=f"warning: {warning}")
        if back:
            left_out = sorted(self._loop.left_out)
            self._recorder.event("roll_back", step=step, left_out=left_out, workers=self._loop.world_size)
        elif step:
            message = f"going on from the checkpoint of step {step:,} of {steps:,}"
            self._recorder.event("resume", step=step, message=message, workers=self._loop.world_size)
        else:
            self._recorder.event("start", step=0, workers=self._loop.world_size)
        self._place.publish()

    def record(self, line: Mapping[str, Any]) -> None:
        """Record a line of a step or of a validation."""
        self._recorder.metrics(line)
        if "seconds" in line and self._trace is not None:
            self._trace.step(self._loop.step)
        if "spike" in line:
            batch, size = batch_of(self._loop.step - 1, self._loop.left_out), self._config.global_batch
            spike = Spike(self._loop.step, batch, line["loss"], list(range(batch * size, (batch + 1) * size)))
            path = incidents.save(self._run, spike)
            message = f"the loss jumped to {spike.loss:.3f} at step {spike.step:,}; the samples are in {path}"
            self._recorder.event(spike.kind, step=spike.step, batch=batch, samples=str(path), message=message)

    def is_due(self) -> bool:
        """Whether a checkpoint is, by step or by time."""
        seconds = self._config.checkpoint_every_seconds
        overdue = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return overdue or self._loop.step % self._config.checkpoint_every_steps == 0

    def save(self, parts: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        """Start writing a checkpoint of a snapshot of this moment; training goes on meanwhile."""
        state["tally"] = dataclasses.asdict(self._tally)
        self._writer.submit(parts, state, best=self._tally.best_step)
        self._saved_at, self._saved_step = time.monotonic(), self._loop.step

    def note(self, incident: Incident, before: list[dict[str, Any]], *, back: bool) -> None:
        """Save the samples of an incident; and where training goes `back`, which batches are left out from now on.

        `before` are the records of the incidents after which training went back already.
        """
        if not back:
            path = incidents.save(self._run, incident)
            self._recorder.event(incident.kind, step=incident.step, batch=incident.batch, samples=str(path))
            self._place.publish()
            return
        self.wait()
        checkpoint = self._saved_step
        first = batch_of(checkpoint, self._loop.left_out)
        left_out = incidents.batches_to_leave_out(incident.batch, first, checkpoint, before)
        path = incidents.save(self._run, incident, left_out=left_out, checkpoint=checkpoint)
        what = "is not a number" if incident.kind == "not_a_number" else f"jumped to {incident.loss:.3f}"
        batches = f"batch {incident.batch:,}" if len(left_out) == 1 else f"batches {first:,} to {incident.batch:,}"
        message = f"the loss {what} at step {incident.step:,}; going back to step {checkpoint:,}, leaving out {batches}"
        self._recorder.event(
            incident.kind, step=incident.step, batch=incident.batch, samples=str(path), message=message
        )
        self._place.publish()

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
            "checkpoint": f"{self._place.name}/checkpoints/{checkpoint_name(step)}",
        }
        write_atomically(self._run / "result.json", json.dumps(result, indent=1) + "\n")
        self._recorder.event("complete", step=step)

    def _note_trace(self, path: Path) -> None:
        self._recorder.event(
            "profile", step=self._loop.step, trace=str(path), message=f"profile of a few steps: {path}"
        )
