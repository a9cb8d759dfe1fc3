"""One trial in one process: train to each report, validate, save, and resume from the newest checkpoint."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tokenfree.core import own_code
from tokenfree.core.errors import JobError
from tokenfree.core.files import lock
from tokenfree.core.settings import build
from tokenfree.train.config import Recipe
from tokenfree.train.loop.meter import Meter
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.loop.worker import LoopFiles, train
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import Checkpoint, RunProgress
from tokenfree.train.runs.provenance import machine
from tokenfree.train.runs.run import Run
from tokenfree.train.sweep.recipe import Budget, class_of
from tokenfree.train.sweep.subjects import Subject
from tokenfree.train.torch_state import set_determinism

_PATIENCE = 120  # seconds that an abandoned worker may live; one behind a network partition ends after 45
_WARM, _TIMED = 2, 6  # warm-up steps, and timed steps
# A learning rate that keeps the weights unchanged, so that they cannot diverge.
_AT_REST = 1e-12


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


class TrialSession(LoopFiles):
    """A trial positioned at one of its reports. Call `open`, then `advance` for each report, then `close`."""

    def __init__(self, segment: TrialSegment) -> None:
        self._segment = segment
        self._device, self._subject = "cuda" if segment.gpu else "cpu", segment.subject
        self._folder = Path(segment.folder)
        self._seconds = segment.budget.seconds or math.inf
        self._stack = contextlib.ExitStack()
        self._report: dict[str, Any] = {"report": 0}
        # Less than the number of `_report` if a kill followed before that reached the sweep.
        self._known = segment.known
        self._checkpoint: Checkpoint | None = None
        # None until the checkpoint is loaded.
        self._progress: RunProgress | None = None

    def open(self) -> None:
        """Lock the trial's folder and build its loop, for the steps of its newest checkpoint if it has one.

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
            self._build()
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
        if self._report["report"] <= self._known:
            share = (self._report["report"] + 1) / self._segment.reports
            until = math.ceil(self.loop.recipe.train.steps * share)
            saved, seconds = self._report, self._seconds * share
            self._progress = train(
                self.loop, self, self._progress, until=until, seconds=seconds, validate_every=until
            ).progress
            # No step was left, because there are more reports than steps.
            if self._report is saved:
                self.save(self._progress)
        self._known = self._report["report"]
        return self._report

    def close(self) -> None:
        self._stack.close()

    def load(self) -> RunProgress:
        if self._checkpoint is None:
            return RunProgress()
        self.loop.load(self._checkpoint)
        return self._checkpoint.state.progress or RunProgress()

    def save(self, progress: RunProgress) -> None:
        step, train_config = self.loop.step, self.loop.recipe.train
        # A budget in seconds may end before its planned steps, or after them.
        is_last = step >= train_config.steps or progress.seconds >= self._seconds
        self._report = {
            "report": self._segment.reports if is_last else self._report["report"] + 1,
            "step": step,
            "loss": progress.loss,
            **(progress.validation or {}),
            **self._subject.judged(progress.best_loss),
            "train_seconds": progress.seconds,
            "characters": progress.characters,
            "flops": self._step_flops * step,
            "characters_per_second": progress.characters / max(progress.seconds, 1e-9),
            "parameters": sum(parameter.numel() for parameter in self.loop.encoder.parameters()),
            "seed": train_config.seed,
            "machine": machine(),
        }
        parts, state = self.loop.snapshot()
        trial = {"steps": train_config.steps, "report": self._report}
        state = dataclasses.replace(state, trial=trial, progress=progress)
        folder = self._folder / "checkpoints"
        checkpoints.write(folder / checkpoints.checkpoint_name(step), parts, state)
        best = progress.best_step if self.loop.source.keeps_best else None
        checkpoints.prune(folder, step=step, keep=2, best=best)

    def _build(self) -> None:
        # The command has checked it.
        with own_code.trusting(True, self._segment.name):
            recipe = build(class_of(self._segment.recipe), self._segment.recipe, source=self._segment.name)
        # By default a trial is not compiled: it would take minutes of each, and steps are timed before.
        train_config = dataclasses.replace(recipe.train, compile=bool(recipe.train.compile))
        recipe = dataclasses.replace(recipe, train=train_config)
        self._checkpoint = Run(self._folder).newest(lambda damaged: None) or self._begun(recipe)
        trial = None if self._checkpoint is None else self._checkpoint.state.trial
        if trial is not None:
            self._report = dict(trial["report"])
        steps = self._planned_steps(recipe) if trial is None else trial["steps"]
        recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, steps=steps))
        self.loop = self._subject.make_loop(recipe, device=self._device)
        self._step_flops = flops_of_step(self.loop)

    def _begun(self, recipe: Recipe) -> Checkpoint | None:
        """Save given weights that the trial starts from as a checkpoint of step 0, and return it.

        None without any.
        """
        first = self._subject.first_loop(recipe)
        if first is None:
            return None
        folder = self._folder / "checkpoints" / checkpoints.checkpoint_name(0)
        checkpoints.write(folder, *first.snapshot())
        return checkpoints.read(folder)

    def _planned_steps(self, recipe: Recipe) -> int:
        """Return the number of steps that the budget allows. Steps are measured on a separate loop."""
        budget = self._segment.budget
        if budget.steps is not None:
            return budget.steps
        # The same work per step, but the weights do not change.
        train_config = dataclasses.replace(recipe.train, steps=_WARM + _TIMED, learning_rate=_AT_REST)
        loop = self._subject.make_loop(dataclasses.replace(recipe, train=train_config), device=self._device)
        per_step = flops_of_step(loop) if budget.key == "flops" else mean_of_steps(loop, budget.key)
        return max(1, round(budget.amount / per_step))


def flops_of_step(loop: TrainingLoop[Any]) -> float:
    train_config, arrays = loop.recipe.train, loop.loader.batch(0)
    meter = Meter(loop.encoder, loop.model.head, device=loop.device, precision=train_config.precision)
    return meter.flops(arrays) / len(arrays["sample_ids"]) * train_config.global_batch


def mean_of_steps(loop: TrainingLoop[Any], name: str) -> float:
    """Return the mean of a metric, such as `seconds`, over steps of a new loop, which cannot be used afterwards."""
    return fmean([line[name] for line in loop.steps(_WARM + _TIMED)][_WARM:])
