"""What a trial will come to, before it is trained: parameters, steps, characters and arithmetic."""

from dataclasses import dataclass

import torch

from preprocess.manifest import Manifest
from preprocess.vocabulary import Vocabulary
from train.config import PretrainRecipe
from train.data.loader import Loader
from train.objectives.base import Arrays
from train.sweep.config import SweepRecipe
from train.sweep.space import Values
from train.task import Task
from train.utilisation import Meter


@dataclass(frozen=True)
class Estimate:
    """A whole trial. `steps` and with it the other counts are None where the budget is in seconds."""

    parameters: int  # of the encoder
    step_flops: float
    step_characters: float
    steps: int | None

    @property
    def flops(self) -> float | None:
        """Forward and backward."""
        return None if self.steps is None else self.steps * self.step_flops

    @property
    def characters(self) -> float | None:
        """Of text."""
        return None if self.steps is None else self.steps * self.step_characters


class Estimator:
    """Estimates trials on the data directory `data` from the shapes of their models and one batch."""

    def __init__(self, sweep: SweepRecipe, data: str, manifest: Manifest, vocabulary: Vocabulary | None) -> None:
        self._sweep, self._data, self._manifest, self._vocabulary = sweep, data, manifest, vocabulary
        self._arrays: Arrays | None = None

    def estimate(self, values: Values) -> Estimate:
        """The trial of these values."""
        recipe = self._sweep.recipe(values)
        arrays = self._arrays = self._batch(recipe) if self._arrays is None else self._arrays
        with torch.device("meta"):
            task = Task(recipe, self._vocabulary.size if self._vocabulary is not None else 0)
        meter = Meter(task.encoder, task.head, device=torch.device("cpu"), precision=recipe.train.precision)
        share = recipe.train.global_batch / len(arrays["sample_ids"])
        characters = float(arrays["num_characters"].sum()) * share
        flops = meter.flops(arrays) * share
        parameters = sum(parameter.numel() for parameter in task.encoder.parameters())
        return Estimate(parameters, flops, characters, self._steps(flops, characters))

    def _steps(self, flops: float, characters: float) -> int | None:
        budget = self._sweep.budget
        if budget.seconds is not None:
            return None
        steps = budget.steps or (budget.flops or 0) / flops or (budget.characters or 0) / characters
        return max(1, round(steps))

    def _batch(self, recipe: PretrainRecipe) -> Arrays:
        train = recipe.train
        loader = Loader(
            self._data,
            global_batch=256,
            seed=train.seed,
            smoothing=train.smoothing,
            streams=1,
            collator=recipe.objective.collator(self._vocabulary, train.length, train.seed),
        )
        return loader.batch(0)
