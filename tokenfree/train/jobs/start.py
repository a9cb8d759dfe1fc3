"""Start a run from given weights, or extend a finished one.

The command writes given weights as the checkpoint of step 0. After an extension, the learning rates are those of a run
of the new length. The earlier steps keep their rates, so the result differs from that of a run of the new length.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, Generic

from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import fingerprint
from tokenfree.train.config import PretrainRecipe, R
from tokenfree.train.jobs.weights import Fit, GivenWeights, absolute, fit, read_weights
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.config import InitFrom, RunConfig, config_before, read_config
from tokenfree.train.runs.hashes import remove_hashes
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run


class Extension:
    """An extension of the existing `run` to a total of `steps`. Raises UserError if there is no run or it is longer."""

    def __init__(self, run: Run, recipe: PretrainRecipe, steps: int) -> None:
        before = config_before(run.name, recipe)
        if before is None:
            raise UserError(f"--extend-to {steps}: {run.name} is not a run yet; begin it with --train.steps {steps}")
        self._run, self._steps, self._steps_before = run, steps, before.recipe.train.steps
        if steps < self._steps_before:
            raise UserError(
                f"--extend-to {steps}: {run.name} is a run of {self._steps_before:,} steps; give more, or leave it out"
            )
        self.before = _with_steps(recipe, self._steps_before)
        self.after = _with_steps(recipe, steps)
        self.is_done = steps == self._steps_before

    def line(self) -> str:
        return (
            f"made longer, from {self._steps_before:,} to {self._steps:,} steps; step {self._done() + 1:,} and those "
            f"after it have the learning rate of a run of {self._steps:,} steps"
        )

    def write(self, run: Run, on_line: OnLine | None) -> None:
        """Extend `run`, which this command has claimed. Do nothing if it already has that length."""
        self._run = run
        if self.is_done:
            return
        remove_hashes(run.name)
        more = {"steps": self._steps, "steps_before": self._steps_before, "message": self.line()}
        line = run.add_event("extend", step=self._done(), **more)
        run.reopen(dataclasses.replace(read_config(run.name), recipe=self.after))
        if on_line is not None:
            on_line(line)

    def _done(self) -> int:
        checkpoint = self._run.newest(lambda warning: None)  # the workers report damaged ones
        return 0 if checkpoint is None else checkpoint.step


def _with_steps(recipe: PretrainRecipe, steps: int) -> PretrainRecipe:
    return dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, steps=steps))


MakeLoop = Callable[[R], TrainingLoop[R]]


class GivenStart(Generic[R]):
    """The weights at `source` as the start of `run`. Raises UserError if they do not exist or (almost) none fits.

    They are read only if the run is new or started from another path. `make_loop` makes the loop of a recipe.
    """

    def __init__(self, run: Run, recipe: R, make_loop: MakeLoop[R], source: str, *, trust_code: bool = False) -> None:
        if _same(source, run.name):
            raise UserError(f"--init-from {source} is the run itself; give another --output")
        self._recipe, self._make_loop, self._trust_code = recipe, make_loop, trust_code
        self._path = absolute(source)
        self._given: GivenWeights | None = None
        self._begun: tuple[TrainingLoop[R], Fit] | None = None
        before = config_before(run.name, recipe)
        self.record = self._record(before)

    def lines(self) -> list[str]:
        return self._fit()[1].lines()

    def write(self, run: Run, on_line: OnLine | None) -> None:
        """Write the first checkpoint, unless there is a valid one. Raises UserError if the weights have changed."""
        if run.newest(lambda warning: None) is None:  # the workers report damaged ones
            self._write(run, on_line)
        self._given = self._begun = None  # free their memory for training

    def _write(self, run: Run, on_line: OnLine | None) -> None:
        if self._read().sha256 != self.record.sha256:
            raise UserError(
                f"--init-from {self._path}: the weights are not those that {run.name} was begun with, and it has no "
                "checkpoint yet; give another --output"
            )
        loop, found = self._fit()
        line = run.add_event(
            "init_from",
            step=0,
            source=found.given.path,
            sha256=found.given.sha256,
            tensors=len(found.taken),
            parameters=found.num_parameters,
            share=round(found.share, 4),
            message="\n".join(found.lines()),
        )
        if on_line is not None:
            on_line(line)
        parts, state = loop.snapshot()
        with run.written():
            state = dataclasses.replace(state, recipe=fingerprint(self._recipe))
            checkpoints.write(run.folder / "checkpoints" / checkpoints.checkpoint_name(0), parts, state)
            run.saved(0, keep=self._recipe.train.keep_checkpoints, best=None)

    def _record(self, before: RunConfig[R] | None) -> InitFrom:
        if before is None:
            self._fit()
        elif before.init_from is None:
            return InitFrom(self._path, "")  # `Run.open` then raises an error
        elif before.init_from.path == self._path:
            return before.init_from
        return InitFrom(self._path, self._read().sha256)

    def _read(self) -> GivenWeights:
        if self._given is None:
            self._given = read_weights(self._path, trust_code=self._trust_code)
        return self._given

    def _fit(self) -> tuple[TrainingLoop[R], Fit]:
        if self._begun is None:
            self._begun = begun(self._recipe, self._make_loop, self._read())
        return self._begun


def begun(recipe: R, make_loop: MakeLoop[R], given: GivenWeights) -> tuple[TrainingLoop[R], Fit]:
    """Return the training loop of `recipe` on the CPU, started from the weights `given` that fit.

    Additional projections of attention patterns start as copies of their layer's if they are not given.
    """
    loop = make_loop(recipe)
    sizes = {name: parameter.numel() for name, parameter in loop.model.named_parameters()}
    found = fit(loop.model.state_dict(), sizes, given, recipe, loop.source.vocabulary)
    loop.begin_with(found.taken)
    copied = _copies_of_layers(loop) if found.taken else {}
    loop.begin_with({**copied, **found.taken})
    copied = dict.fromkeys(copied.keys() - found.taken.keys(), "copies of its layer's own")
    return loop, dataclasses.replace(found, new={**found.new, **copied})


def _copies_of_layers(loop: TrainingLoop[Any]) -> dict[str, Tensor]:
    layers: list[Any] = list(loop.encoder.trunk.layers)
    copied = [f"encoder.trunk.layers.{index}.core.{name}"
              for index, layer in enumerate(layers) for name in layer.core.copy_projections(layer)]  # fmt: skip
    state = loop.model.state_dict()
    return {name: state[name].clone() for name in copied}


def _same(source: str, run: str) -> bool:
    one, other = (each.rstrip("/") if "://" in each else os.path.realpath(each) for each in (source, run))
    return one == other
