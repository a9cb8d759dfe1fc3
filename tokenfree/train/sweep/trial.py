"""One trial in one process: train to each report, validate, save, and resume from the newest checkpoint."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tokenfree.core import own_code
from tokenfree.core.errors import JobError
from tokenfree.core.files import lock
from tokenfree.core.settings import build
from tokenfree.train.config import Recipe
from tokenfree.train.loop.losses import checked_validation
from tokenfree.train.loop.meter import Meter
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import Checkpoint, RunProgress
from tokenfree.train.runs.provenance import machine
from tokenfree.train.runs.run import Run
from tokenfree.train.sweep.recipe import Budget, class_of
from tokenfree.train.sweep.subjects import Subject
from tokenfree.train.torch_state import set_determinism

_PATIENCE = 120  # seconds that an abandoned worker may live; one behind a network partition ends after 45
_WARM, _TIMED = 2, 6  # warm-up steps, and timed steps
_AT_REST = 1e-12  # a learning rate that keeps the weights unchanged, so that they cannot diverge


@dataclasses.dataclass(frozen=True)
class TrialSegment:
    """What a process gets: the trial, its data, and the number of reports that the sweep already has.

    All machines can access `folder`. `known` is the number of the last of all `reports` that the sweep has, 0
    if none.
    """

    name: str
    recipe: Mapping[str, Any]
    subject: Subject
    folder: str
    budget: Budget
    reports: int
    known: int
    threads: int
    gpu: bool = False


class _TimeIsUp(Exception):
    """Raised to end a stretch of training whose budget is in seconds."""


class TrialSession:
    """A trial positioned at one of its reports. Call `open`, then `advance` for each report, then `close`."""

    def __init__(self, segment: TrialSegment) -> None:
        self._segment = segment
        self._device = "cuda" if segment.gpu else "cpu"
        self._subject = segment.subject
        self._folder = Path(segment.folder)
        self._seconds = segment.budget.seconds or math.inf
        self._stack = contextlib.ExitStack()
        self._used: dict[str, Any] = {"train_seconds": 0.0, "characters": 0, "flops": 0.0}
        self._report: dict[str, Any] = {"report": 0}
        self._progress = RunProgress()  # with its best validation
        self._unreported = False  # whether a kill followed the report before it reached the sweep

    def open(self) -> None:
        """Lock the trial's folder and resume from its newest checkpoint, or start from the beginning.

        Raises JobError if another process holds the folder or the first weights have changed, and UserError
        if data or weights cannot be read.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            held = JobError(
                f"another process still trains {self._folder}; end it and run the same command again"
            )
            self._stack.enter_context(lock(self._folder / "lock", seconds=_PATIENCE, held=held))
            torch.set_num_threads(self._segment.threads)
            set_determinism(int(not self._device.startswith("cuda")))
            self._restore()
        except BaseException:
            self.close()
            raise

    def advance(self) -> dict[str, Any]:
        """Train to the next report, validate, save a checkpoint, and return the report.

        A report has `report`, its number from 1; `step`; `loss` of the last step and `validation_loss`, both
        in nats per target; other validation metrics; `dev_score` or `dev_error` of a task; `train_seconds`
        (in training steps only), `characters` and `flops` since the start of the trial;
        `characters_per_second`; `parameters` of the encoder; `seed`; `machine`.

        Raises NotANumber or Spike if training failed, JobError if the held-out loss is not a number, and
        UserError if the checkpoint cannot be written.
        """
        if self._unreported:
            self._unreported = False
            return self._report
        number = self._report["report"] + 1
        share = number / self._segment.reports
        steps = self._loop.recipe.train.steps
        loss = self._train(math.ceil(steps * share), self._seconds * share)
        if self._loop.step >= steps or self._used["train_seconds"] >= self._seconds:
            # A budget in seconds may end before its planned steps, or after them.
            number = self._segment.reports
        validation = checked_validation(self._loop.step, self._loop.validate())
        selection_loss = self._loop.source.selection_loss(validation)
        self._progress = self._progress.after_validation(self._loop.step, validation, selection_loss)
        self._report = {
            "report": number,
            "step": self._loop.step,
            "loss": loss,
            **validation,
            **self._subject.judged(self._progress.best_loss),
            **self._used,
            "characters_per_second": self._used["characters"] / max(self._used["train_seconds"], 1e-9),
            "parameters": sum(parameter.numel() for parameter in self._loop.encoder.parameters()),
            "seed": self._loop.recipe.train.seed,
            "machine": machine(),
        }
        self._save()
        return self._report

    def close(self) -> None:
        self._stack.close()

    def _restore(self) -> None:
        with own_code.trusting(True, self._segment.name):  # the command has checked it
            recipe = build(class_of(self._segment.recipe), self._segment.recipe, source=self._segment.name)
        self._loop = self._subject.make_loop(recipe, device=self._device)
        meter = Meter(
            self._loop.encoder,
            self._loop.model.head,
            device=self._loop.device,
            precision=recipe.train.precision,
        )
        arrays = self._loop.loader.batch(0)
        self._step_flops = meter.flops(arrays) / len(arrays["sample_ids"]) * recipe.train.global_batch
        checkpoint = self._newest() or self._begun(recipe)
        trial = None if checkpoint is None else checkpoint.state.trial
        if checkpoint is None or trial is None:
            self._set_steps(self._planned_steps(recipe))
            return
        self._set_steps(trial["steps"])
        self._progress = checkpoint.state.progress or RunProgress()
        self._used, self._report = dict(trial["used"]), dict(trial["report"])
        self._unreported = self._report["report"] > self._segment.known

    def _newest(self) -> Checkpoint | None:
        return self._loop.restore_newest(Run(self._folder), lambda damaged: None)

    def _begun(self, recipe: Recipe) -> Checkpoint | None:
        """Save given weights that the trial starts from as a checkpoint of step 0, and restore it.

        None without any.
        """
        first = self._subject.first_loop(recipe)
        if first is not None:
            parts, state = first.snapshot()
            checkpoints.write(self._folder / "checkpoints" / checkpoints.checkpoint_name(0), parts, state)
        return self._newest()

    def _planned_steps(self, recipe: Recipe) -> int:
        """Return the number of steps that the budget allows. Steps are timed on a separate loop."""
        steps = self._segment.budget.steps
        if steps is not None:
            return steps
        # The same work per step, but the weights do not change.
        train = dataclasses.replace(recipe.train, steps=_WARM + _TIMED, learning_rate=_AT_REST)
        loop = self._subject.make_loop(dataclasses.replace(recipe, train=train), device=self._device)
        return max(1, round(self._seconds / seconds_of_step(loop)))

    def _set_steps(self, steps: int) -> None:
        """Set the recipe's number of steps.

        It can depend on measurements of the loop, so the loop is built before.
        """
        train = dataclasses.replace(self._loop.recipe.train, steps=steps)
        self._loop.recipe = dataclasses.replace(self._loop.recipe, train=train)

    def _train(self, step: int, seconds: float) -> float:
        losses = [self._report.get("loss", math.nan)]  # stays if there are more reports than steps
        previous_seconds, began = self._used["train_seconds"], time.perf_counter()

        def after_step(line: Mapping[str, float]) -> None:
            losses[0] = line["loss"]
            self._used["characters"] += int(line["characters"])
            self._used["flops"] += self._step_flops
            if previous_seconds + time.perf_counter() - began >= seconds:
                raise _TimeIsUp

        with contextlib.suppress(_TimeIsUp):
            self._loop.train_until(step, after_step)
        self._used["train_seconds"] = previous_seconds + time.perf_counter() - began
        return losses[0]

    def _save(self) -> None:
        parts, state = self._loop.snapshot()
        trial = {"steps": self._loop.recipe.train.steps, "used": self._used, "report": self._report}
        folder, progress = self._folder / "checkpoints", self._progress
        state = dataclasses.replace(state, trial=trial, progress=progress)
        checkpoints.write(folder / checkpoints.checkpoint_name(self._loop.step), parts, state)
        best = progress.best_step if self._loop.source.keeps_best else None
        checkpoints.prune(folder, step=self._loop.step, keep=2, best=best)


def seconds_of_step(loop: TrainingLoop[Any]) -> float:
    """Return the mean seconds per step of a new loop, which cannot be used afterwards."""
    seconds: list[float] = []
    loop.train_until(_WARM + _TIMED, lambda line: seconds.append(line["seconds"]))
    return sum(seconds[_WARM:]) / _TIMED
