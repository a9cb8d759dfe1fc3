"""The training loop of pretraining: on the windows of a data directory, for an objective."""

from __future__ import annotations

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.baselines import Baselines
from tokenfree.train.loop.stopping import Stop
from tokenfree.train.loop.training_loop import TrainingLoop
from tokenfree.train.loop.validation import Validator
from tokenfree.train.loop.windows import WindowSource
from tokenfree.train.mixture.mixture import Data


class Loop(TrainingLoop[PretrainRecipe]):
    """A `TrainingLoop` of a pretraining run.

    Args:
        recipe: what to train, already checked (see `tokenfree.train.config.check`).
        data: a data directory with a manifest, or several.
        rank, world_size, device, stop: see `TrainingLoop`.

    Raises:
        UserError: no such data, or data that the recipe cannot be trained on.
    """

    def __init__(
        self,
        recipe: PretrainRecipe,
        data: Data,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: str = "cpu",
        stop: Stop | None = None,
    ) -> None:
        self.data = data
        self._windows = WindowSource(recipe, data, rank=rank, world_size=world_size)
        super().__init__(recipe, self._windows, rank=rank, world_size=world_size, device=device, stop=stop)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Of the data."""
        return self._windows.vocabulary

    @property
    def validator(self) -> Validator:
        """The validation windows."""
        return self._windows.validator

    def baselines(self) -> Baselines | None:
        """What models without context would score on the validation targets; None for objectives without such."""
        return self._windows.baselines()
