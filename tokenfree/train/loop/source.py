"""What a run trains on and is judged by, as one of its workers has it: the seam between the loop and what it is for.

Pretraining has windows of a data directory (windows.py), fine-tuning the examples of a task (train/finetuning/).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.data.prefetch import Prefetcher
from tokenfree.train.loop.task import Task
from tokenfree.train.runs.checkpoint_state import RunProgress


class StepLoader(Protocol):
    """This worker's batches: batch number b is a pure function of the data and the settings."""

    @property
    def fingerprint(self) -> Mapping[str, str | int | float]:
        """What decides the batches; saved with checkpoints, see `check`."""
        ...

    def batch(self, step: int) -> Arrays:
        """This worker's slice of a global batch. The first axis of all arrays is the example; `sample_ids` and
        `num_characters` are among them, int64 [b].
        """
        ...

    def batches(self, start: int, stop: int | None = None, *, left_out: Collection[int] = ()) -> Prefetcher[Arrays]:
        """Those of steps start, start + 1, ..., made ahead; step s has the batch `batch_of(s, left_out)`."""
        ...

    def check(self, saved: Mapping[str, str | int | float], source: str) -> None:
        """Refuse to go on from the checkpoint `source`, which was saved with another fingerprint.

        Raises:
            UserError: it was.
        """
        ...


class Source(Protocol):
    """Data, model and judgement of a run."""

    @property
    def content(self) -> str:
        """A fingerprint of the data."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Of the data, or of the texts that the model reads; None where there is none."""
        ...

    @property
    def loader(self) -> StepLoader:
        """What is trained on."""
        ...

    @property
    def keeps_best(self) -> bool:
        """Whether the best checkpoint is what the run is for; it is then written as soon as it is found."""
        ...

    def build(self) -> Task:
        """The encoder with its head, fresh: the same on every worker and at every start."""
        ...

    def validate(self, task: Task, device: torch.device, *, equally_many: bool) -> dict[str, float]:
        """`validation_...` by name, the same on all workers, which all call it; empty where there is nothing to
        validate on. `task` is in evaluation mode; workers need `equally_many` passes where they hold parts of it.
        """
        ...

    def badness(self, validation: Mapping[str, float]) -> float:
        """The number by which validations are compared: the lowest is the best."""
        ...

    def result(
        self, task: Task, device: torch.device, progress: RunProgress, folder: Path | None, *, equally_many: bool
    ) -> dict[str, Any]:
        """What result.json is to say of the finished run, on rank 0, which has the `folder` of the run for other
        files. All workers call it, with the weights that count.
        """
        ...
