"""Start a run from given weights, which the command writes as the checkpoint of step 0."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Generic

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, absolute_path, expand_home
from tokenfree.core.settings_values import fingerprint
from tokenfree.train.config import R
from tokenfree.train.jobs.weights import GivenWeights, WeightMatch, match_weights, read_weights
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.config import InitFrom, RunConfig, config_before
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run

MakeLoop = Callable[[R], TrainingLoop[R]]


class GivenStart(Generic[R]):
    """The weights at `source` as the start of `run`.

    Raises UserError if they do not exist or (almost) none fits. They are read only if the run is new or
    started from another path. `make_loop` makes the loop of a recipe.
    """

    def __init__(
        self, run: Run, recipe: R, make_loop: MakeLoop[R], source: AnyPath, *, trust_code: bool = False
    ) -> None:
        source = expand_home(source)
        one, other = (
            path.rstrip("/") if "://" in path else os.path.realpath(path) for path in (source, run.name)
        )
        if one == other:
            raise UserError(f"--init-from {source} is the run itself; give another --output")
        self._recipe, self._make_loop, self._trust_code = recipe, make_loop, trust_code
        self._path = absolute_path(source)
        self._given: GivenWeights | None = None
        self._begun: tuple[TrainingLoop[R], WeightMatch] | None = None
        previous = config_before(run.name, recipe)
        self.record = self._record(previous)

    def lines(self) -> list[str]:
        return self._fit()[1].lines()

    def write(self, run: Run, on_line: OnLine) -> None:
        """Write the first checkpoint, unless there is a valid one.

        Raises UserError if the weights have changed.
        """
        # The workers report damaged ones.
        if run.newest(lambda warning: None) is None:
            self._write(run, on_line)
        # Free their memory for training.
        self._given = self._begun = None

    def _write(self, run: Run, on_line: OnLine) -> None:
        if self._read().sha256 != self.record.sha256:
            raise UserError(
                f"--init-from {self._path}: the weights are not those that {run.name} was begun with, and it has no "
                "checkpoint yet; give another --output"
            )
        loop, matched = self._fit()
        line = run.add_event(
            "init_from",
            step=0,
            source=matched.given.path,
            sha256=matched.given.sha256,
            tensors=len(matched.taken),
            parameters=matched.num_parameters,
            share=round(matched.share, 4),
            message="\n".join(matched.lines()),
        )
        on_line(line)
        parts, state = loop.snapshot()
        with run.written():
            state = dataclasses.replace(state, recipe=fingerprint(self._recipe))
            checkpoints.write(run.folder / "checkpoints" / checkpoints.checkpoint_name(0), parts, state)
            run.saved(0, keep=self._recipe.train.keep_checkpoints, best=None)

    def _record(self, previous: RunConfig[R] | None) -> InitFrom:
        if previous is None:
            self._fit()
        elif previous.init_from is None:
            # `Run.open` then raises an error.
            return InitFrom(self._path, "")
        elif previous.init_from.path == self._path:
            return previous.init_from
        return InitFrom(self._path, self._read().sha256)

    def _read(self) -> GivenWeights:
        if self._given is None:
            self._given = read_weights(self._path, trust_code=self._trust_code)
        return self._given

    def _fit(self) -> tuple[TrainingLoop[R], WeightMatch]:
        if self._begun is None:
            self._begun = loop_from_weights(self._recipe, self._make_loop, self._read())
        return self._begun


def loop_from_weights(
    recipe: R, make_loop: MakeLoop[R], weights: GivenWeights
) -> tuple[TrainingLoop[R], WeightMatch]:
    """Return the training loop of `recipe` on the CPU, started from the weights `given` that fit.

    Additional projections of attention patterns start as copies of their layer's if they are not given.
    """
    loop = make_loop(recipe)
    sizes = {name: parameter.numel() for name, parameter in loop.model.named_parameters()}
    matched = match_weights(loop.model.state_dict(), sizes, weights, recipe, loop.source.vocabulary)
    loop.begin_with(matched.taken)
    names = (
        [f"encoder.trunk.{name}" for name in loop.encoder.trunk.copy_projections()] if matched.taken else []
    )
    state = loop.model.state_dict()
    loop.begin_with({**{name: state[name].clone() for name in names}, **matched.taken})
    copied = dict.fromkeys(set(names) - matched.taken.keys(), "copies of its layer's own")
    return loop, dataclasses.replace(matched, new={**matched.new, **copied})
