"""What a trial will come to, before it is trained: parameters, steps, characters and arithmetic."""

from dataclasses import dataclass

import torch

from tokenfree.train.batches.base import Arrays
from tokenfree.train.loop.step import Meter
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import SweepRecipe
from tokenfree.train.sweep.subjects.base import Subject


@dataclass(frozen=True)
class TrialCost:
    """What a whole trial comes to. Where the budget is in seconds, its steps and all that follows from them are None.

    Attributes:
        parameters: of the encoder.
        step_flops: floating point operations of a step, forward and backward.
        step_characters: characters of text in a step.
        steps: that the budget is worth.
    """

    parameters: int
    step_flops: float
    step_characters: float
    steps: int | None

    @property
    def flops(self) -> float | None:
        """Floating point operations of the whole trial, forward and backward."""
        return None if self.steps is None else self.steps * self.step_flops

    @property
    def characters(self) -> float | None:
        """Characters of text in the whole trial."""
        return None if self.steps is None else self.steps * self.step_characters


class CostEstimator:
    """Estimates trials on `subject` from the shapes of their models and one batch."""

    def __init__(self, sweep: SweepRecipe, subject: Subject) -> None:
        self._sweep, self._subject = sweep, subject
        self._arrays: Arrays | None = None

    def estimate(self, values: Values) -> TrialCost:
        """The cost of the trial with these values; nothing is trained.

        Raises:
            UserError: the values make no recipe, or the data cannot be read.
        """
        recipe = self._sweep.recipe(values)
        arrays = self._arrays = self._subject.batch(recipe) if self._arrays is None else self._arrays
        with torch.device("meta"):
            task = self._subject.build(recipe)
        meter = Meter(task.encoder, task.head, device=torch.device("cpu"), precision=recipe.train.precision)
        share = recipe.train.global_batch / len(arrays["sample_ids"])
        characters = float(arrays["num_characters"].sum()) * share
        flops = meter.flops(arrays) * share
        parameters = sum(parameter.numel() for parameter in task.encoder.parameters())
        return TrialCost(parameters, flops, characters, self._steps(flops, characters))

    def _steps(self, flops: float, characters: float) -> int | None:
        budget = self._sweep.budget
        if budget.seconds is not None:
            return None
        steps = budget.steps or (budget.flops or 0) / flops or (budget.characters or 0) / characters
        return max(1, round(steps))
