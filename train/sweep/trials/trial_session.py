"""One trial in one worker: trains to each report, validates, saves, and goes on from its own newest checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from preprocess.errors import JobError
from preprocess.settings import build
from train import checkpoints
from train.config import PretrainRecipe
from train.loop import Loop
from train.run_folder import lock
from train.sweep.config import Budget
from train.utilisation import Meter

_SAMPLED = 256  # examples whose characters are counted to turn a budget of characters into steps
_WARM, _TIMED = 2, 6  # steps that are timed to turn a budget of seconds into steps


@dataclasses.dataclass(frozen=True)
class Leg:
    """What a worker is told: which trial, what it trains on, and what the sweep knows of it already."""

    name: str
    recipe: Mapping[str, Any]  # resolved
    data: str
    folder: str  # of the trial; all workers reach it
    budget: Mapping[str, Any]
    reports: int  # that the trial makes in all
    known: int  # the number of the last one that the sweep has
    threads: int
    gpu: bool = False


class _TimeIsUp(Exception):
    """Ends a stretch of training whose budget is in seconds."""


class Session:
    """A trial at one of its reports, in the worker `rank` of `world_size`.

    Raises:
        JobError: another process holds the trial's folder.
        UserError: see `train.loop.Loop`.
    """

    def __init__(self, leg: Leg, *, rank: int = 0, world_size: int = 1, device: str | None = None) -> None:
        self._leg, self._rank, self._world_size = leg, rank, world_size
        self._device = device or ("cuda" if leg.gpu else "cpu")
        self._stack = contextlib.ExitStack()
        self._folder = Path(leg.folder)
        self._used = {"train_seconds": 0.0, "characters": 0, "flops": 0.0}
        self._report: dict[str, Any] = {"report": 0}
        self._unheard = False  # whether the report was made just before a kill, and the sweep does not know it
        self._budget = build(Budget, leg.budget, source=leg.name)
        self._seconds = self._budget.seconds or math.inf
        if rank == 0:  # a worker of a killed sweep may live a moment longer than the sweep
            self._folder.mkdir(parents=True, exist_ok=True)
            held = JobError(f"another process still trains {leg.folder}; end it and run the same command again")
            self._stack.enter_context(lock(self._folder / "lock", seconds=60, held=held))
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def advance(self) -> dict[str, Any]:
        """Train to the next report and return it: counts so far, speed, and the validation that all trials share."""
        if self._unheard:
            self._unheard = False
            return self._report
        number = self._report["report"] + 1
        share = number / self._leg.reports
        steps = self._loop.recipe.train.steps
        loss = self._train(math.ceil(steps * share), self._seconds * share)
        if self._loop.step >= steps or self._used["train_seconds"] >= self._seconds:
            number = self._leg.reports  # a budget of seconds may end before its steps, or after
        self._report = {
            "report": number,
            "step": self._loop.step,
            "loss": loss,
            **self._loop.validate(),
            **self._used,
            "characters_per_second": self._used["characters"] / max(self._used["train_seconds"], 1e-9),
            "parameters": sum(parameter.numel() for parameter in self._loop.encoder.parameters()),
            "seed": self._loop.recipe.train.seed,
        }
        self._save()
        return self._report

    def close(self) -> None:
        """Let go of the trial's folder."""
        self._stack.close()

    def _begin(self) -> None:
        torch.set_num_threads(self._leg.threads)
        torch.use_deterministic_algorithms(not self._device.startswith("cuda"), warn_only=True)
        recipe = build(PretrainRecipe, self._leg.recipe, source=self._leg.name)
        damaged: list[str] = []
        folder = self._folder / "checkpoints"
        checkpoint = self._shared(checkpoints.newest(folder, damaged.append) if self._rank == 0 else None)
        self._loop = self._make_loop(recipe)
        if checkpoint is None:
            self._set_steps(self._shared(self._planned_steps()))
            return
        trial = checkpoint.state["trial"]
        self._set_steps(trial["steps"])
        self._loop.load(checkpoint)
        self._used, self._report = trial["used"], trial["report"]
        self._unheard = self._report["report"] > self._leg.known

    def _make_loop(self, recipe: PretrainRecipe) -> Loop:
        loop = Loop(recipe, self._leg.data, rank=self._rank, world_size=self._world_size, device=self._device)
        meter = Meter(loop.encoder, loop.model.head, device=loop.device, precision=recipe.train.precision)
        arrays = loop.loader.batch(0)
        self._step_flops = meter.flops(arrays) / len(arrays["sample_ids"]) * recipe.train.global_batch
        return loop

    def _set_steps(self, steps: int) -> None:
        train = dataclasses.replace(self._loop.recipe.train, steps=steps)
        self._loop.recipe = dataclasses.replace(self._loop.recipe, train=train)

    def _planned_steps(self) -> int:
        """The steps that the budget is worth, by which the learning rate goes up and down."""
        budget, loop = self._budget, self._loop
        if budget.steps is not None:
            return budget.steps
        if budget.seconds is not None:
            return max(1, round(budget.seconds / self._seconds_of_a_step()))
        batch = loop.recipe.train.global_batch
        if budget.flops is not None:
            return max(1, round(budget.flops / self._step_flops))
        counts: list[int] = []
        step = 0
        while len(counts) < _SAMPLED:
            counts += list(loop.loader.batch(step)["num_characters"])
            step += 1
        return max(1, round((budget.characters or 0) / (float(sum(counts)) / len(counts) * batch)))

    def _seconds_of_a_step(self) -> float:
        """Measured on a few steps, after which the trial begins anew."""
        seconds: list[float] = []
        self._set_steps(1_000_000)  # at the rate that it begins with
        self._loop.train_until(_WARM + _TIMED, lambda line: seconds.append(line["seconds"]))
        self._loop = self._make_loop(build(PretrainRecipe, self._leg.recipe, source=self._leg.name))
        return sum(seconds[_WARM:]) / _TIMED

    def _train(self, step: int, seconds: float) -> float:
        """Train until `step`, or until `seconds` were used; the loss of the last step."""
        losses = [float("nan")]
        before, began = self._used["train_seconds"], time.perf_counter()

        def after_step(line: Mapping[str, float]) -> None:
            losses[0] = line["loss"]
            self._used["characters"] += int(line["characters"])
            self._used["flops"] += self._step_flops
            if self._shared(before + time.perf_counter() - began >= seconds, often=True):
                raise _TimeIsUp

        with contextlib.suppress(_TimeIsUp):
            self._loop.train_until(step, after_step)
        self._used["train_seconds"] = before + time.perf_counter() - began
        return losses[0]

    def _shared(self, value: Any, *, often: bool = False) -> Any:
        """What rank 0 has, on all workers. What is asked `often` is asked only where the budget is in seconds."""
        if self._world_size == 1 or (often and self._budget.seconds is None):
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def _save(self) -> None:
        parts, state = self._loop.snapshot()  # all workers: a sharded model is put together
        if self._rank:
            return
        state["trial"] = {"steps": self._loop.recipe.train.steps, "used": self._used, "report": self._report}
        folder = self._folder / "checkpoints"
        checkpoints.write(folder / checkpoints.name(self._loop.step), parts, state)
        checkpoints.prune(folder, step=self._loop.step, keep=2, best=None)
