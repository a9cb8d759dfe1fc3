"""Making a run longer: `train.steps` grows, and training goes on from the newest checkpoint.

The learning rate of every step from there on is that of a run which was that long from its beginning. A finished run,
whose rate has fallen to almost 0, so jumps up to the rate that the longer run has at this step. The steps before it
were done at the rates of the shorter run, so that the end is not that of a run which was longer from its beginning.
"""

from __future__ import annotations

import dataclasses

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.optimizers.learning_rate import learning_rate
from tokenfree.train.runs.folder_hashes import remove_hashes
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run
from tokenfree.train.runs.run_config import config_before, read_config


class Extension:
    """The existing `run` made as long as `steps`.

    Args:
        recipe: of the run; its `train.steps` are not looked at.

    Raises:
        UserError: there is no run, or it is longer.
    """

    def __init__(self, run: Run, recipe: PretrainRecipe, steps: int) -> None:
        before = config_before(run.name, recipe)
        if before is None:
            raise UserError(f"--extend-to {steps}: {run.name} is no run yet; begin it with --train.steps {steps}")
        self._run, self._steps, self._steps_before = run, steps, before.recipe.train.steps
        if steps < self._steps_before:
            raise UserError(
                f"--extend-to {steps}: {run.name} is a run of {self._steps_before:,} steps; give more, or leave it out"
            )
        self.before = _with_steps(recipe, self._steps_before)
        self.after = _with_steps(recipe, steps)
        self.is_done = steps == self._steps_before

    def line(self) -> str:
        """What becomes of the run and its learning rate, for people."""
        return self._words(self._done())

    def write(self, run: Run, on_line: OnLine | None) -> None:
        """For the command that has `run` claimed: make it that long; nothing where it is already.

        Raises:
            UserError: it cannot be written.
        """
        self._run = run
        if self.is_done:
            return
        done = self._done()
        more = {"steps": self._steps, "steps_before": self._steps_before, "message": self._words(done)}
        remove_hashes(run.name)
        line = run.add_event("extend", step=done, **more)
        run.reopen(dataclasses.replace(read_config(run.name, recipe=self.before), recipe=self.after))
        if on_line is not None:
            on_line(line)

    def _done(self) -> int:
        """The steps done at the checkpoint from which training goes on."""
        checkpoint = self._run.newest(lambda warning: None)  # the workers say what is damaged
        return 0 if checkpoint is None else checkpoint.step

    def _words(self, done: int) -> str:
        before, after = (self._rate(done, steps) for steps in (self._steps_before, self._steps))
        return (
            f"made longer, from {self._steps_before:,} to {self._steps:,} steps; step {done + 1:,} and those after it "
            f"have the learning rate of a run of {self._steps:,} steps: {after:.3g} there, not {before:.3g}"
        )

    def _rate(self, done: int, steps: int) -> float:
        """Of the step after so many, in a run of `steps`; 0 after its end."""
        train = self.before.train
        if done >= steps:
            return 0.0
        return learning_rate(done, steps=steps, peak=train.learning_rate, warmup=train.warmup, schedule=train.schedule)


def _with_steps(recipe: PretrainRecipe, steps: int) -> PretrainRecipe:
    return dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, steps=steps))
