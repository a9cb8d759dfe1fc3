"""What every worker of a fine-tuning run is given."""

from __future__ import annotations

import dataclasses

from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetuning.files import TaskFiles
from tokenfree.train.finetuning.source import TaskSource
from tokenfree.train.loop.stopping import Stop
from tokenfree.train.loop.training_loop import TrainingLoop


@dataclasses.dataclass(frozen=True)
class FinetuneJob:
    """The `tokenfree.train.worker.worker.Job` of a fine-tuning run."""

    recipe: FinetuneRecipe
    files: TaskFiles
    run: str
    profile: bool = False
    has_first_checkpoint: bool = False
    owner: str | None = None

    def make_loop(
        self, *, rank: int = 0, world_size: int = 1, device: str = "cpu", stop: Stop | None = None
    ) -> TrainingLoop[FinetuneRecipe]:
        """See `Job.make_loop`."""
        source = TaskSource(self.recipe, self.files, rank=rank, world_size=world_size)
        return TrainingLoop(self.recipe, source, rank=rank, world_size=world_size, device=device, stop=stop)
