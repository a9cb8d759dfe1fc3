"""What a sweep asks of what it trains: the one place that knows whether a trial is one of pretraining or of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tokenfree.train.batches.base import Arrays
from tokenfree.train.loop.step import Task
from tokenfree.train.loop.trainer import TrainingLoop


class Subject(Protocol):
    """Data with what is learned from them. It is cheap to make: what it reads is read when it is asked for."""

    @property
    def content(self) -> str:
        """A fingerprint of the data, and of given weights where trials begin with such.

        Raises:
            UserError: there are no such data.
        """
        ...

    @property
    def parts(self) -> Any:
        """The plain values of which `tokenfree.train.sweep.subjects.choose.subject_of` makes it in another process."""
        ...

    def problems(self, recipe: Any, workers: tuple[int, int]) -> list[str]:
        """Why a recipe cannot be trained on the data, a line each."""
        ...

    def measure(self, recipe: Any) -> Mapping[str, Any]:
        """What decides on what a trial is judged by, by the key that sets it: the same for all trials."""
        ...

    def make_loop(self, recipe: Any, *, rank: int = 0, world_size: int = 1, device: str = "cpu") -> TrainingLoop[Any]:
        """A fresh loop of one worker.

        Raises:
            UserError: there are no such data, or the recipe cannot be trained on them.
        """
        ...

    def first_loop(self, recipe: Any) -> TrainingLoop[Any] | None:
        """A loop in this process with the weights that a trial begins with; None where those are fresh.

        Raises:
            UserError: they cannot be read.
            JobError: they are others than when the sweep began.
        """
        ...

    def batch(self, recipe: Any) -> Arrays:
        """The arrays of some examples, by which the arithmetic of a step is estimated.

        Raises:
            UserError: the data cannot be read.
        """
        ...

    def build(self, recipe: Any) -> Task:
        """The model of a recipe with its head, fresh."""
        ...

    def judged(self, badness: float) -> dict[str, float]:
        """What a report says of the best validation so far, see `Source.badness`; nothing of pretraining, whose last
        validation counts.
        """
        ...
