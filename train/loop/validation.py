"""The fixed windows and masks of validation, shared among the workers of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from preprocess.vocabulary import Vocabulary
from train.config import PretrainRecipe
from train.data.unigram import Unigram, unigram
from train.data.validation import validation_batches
from train.objectives.base import Arrays


class Validator:
    """This worker's part of the validation of one run."""

    def __init__(
        self, recipe: PretrainRecipe, data: str, vocabulary: Vocabulary | None, *, rank: int, world_size: int
    ) -> None:
        self._recipe, self._data, self._vocabulary = recipe, data, vocabulary
        self._rank, self._world_size = rank, world_size

    @torch.no_grad()
    def add(self, sums: Tensor, values_of: Callable[[Arrays], Tensor], *, together: bool) -> Tensor:
        """`sums` with what `values_of` gives for each batch of this worker's added.

        Workers that act `together` are given equally many batches: some of them count for nothing.
        """
        for arrays in self._batches(together=together):
            values = values_of(arrays)
            if len(arrays["sample_ids"]):
                sums += values
        return sums

    def unigram(self) -> Unigram | None:
        """What knowing only the frequencies would score on all targets; None for objectives without such."""
        symbols = self._recipe.objective.symbols(self._vocabulary)
        if symbols is None:
            return None
        held_out = (arrays["target_ids"][arrays["target_mask"]] for arrays in self._batches(alone=True))
        return unigram(self._data, symbols, held_out)

    def _batches(self, *, together: bool = False, alone: bool = False) -> Iterator[Arrays]:
        config = self._recipe.train
        return validation_batches(
            self._data,
            objective=self._recipe.objective,
            vocabulary=self._vocabulary,
            length=config.length,
            num_windows=config.validation_windows,
            batch=min(32, config.micro_batch or 32),
            rank=0 if alone else self._rank,
            world_size=1 if alone else self._world_size,
            together=together,
        )


def sum_over_workers(sums: Tensor, world_size: int) -> list[float]:
    """The sums of all workers added up, on each of them."""
    if world_size > 1:
        dist.all_reduce(sums)
    return sums.tolist()
