"""The fixed windows and masks of validation, shared among the workers of a run."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.baselines import Baselines, baselines
from tokenfree.train.data.shard_reader import ShardReader
from tokenfree.train.data.validation import VALIDATION_SEED, validation_batches
from tokenfree.train.mixture.mixture import Data
from tokenfree.train.objectives.base import MaskedObjective

_MOST = 32  # examples of a batch, as far as `train.micro_batch` allows so many


class Validator:
    """This worker's part of the validation of one run.

    Args:
        data: the data directory that is validated on, or several.
        vocabulary: of these data.
        rank, world_size: this process among the workers.
    """

    def __init__(
        self, recipe: PretrainRecipe, data: Data, vocabulary: Vocabulary | None, *, rank: int, world_size: int
    ) -> None:
        self._recipe, self._data, self._vocabulary = recipe, data, vocabulary
        self._rank, self._world_size = rank, world_size

    def batches(self, *, equally_many: bool = False) -> Iterator[Arrays]:
        """This worker's batches; where workers need `equally_many`, some have no `sample_ids` and count for nothing.

        Raises:
            UserError: the data have no validation windows.
        """
        return self._batches(self._rank, self._world_size, equally_many=equally_many)

    def directory_of(self, arrays: Arrays) -> int:
        """Which of several directories the windows of a batch, one at the least, are of; from 0 on."""
        return int(np.searchsorted(self._first_rows, arrays["sample_ids"][0], side="right")) - 1

    @functools.cached_property
    def _first_rows(self) -> np.ndarray:
        """The number of the first window of each directory, int64."""
        reader = ShardReader(self._data, "validation", check=False)
        rows = np.array([shard.rows for shard in reader.shards], dtype=np.int64)
        directories = reader.directories_of(np.arange(len(rows)))
        sizes = [int(rows[directories == number].sum()) for number in range(int(directories.max(initial=0)) + 1)]
        return np.cumsum([0, *sizes[:-1]])

    def baselines(self) -> Baselines | None:
        """What models without context would score on the targets of all workers; None for objectives without such."""
        symbols = self._recipe.objective.symbols(self._vocabulary)
        if symbols is None:
            return None
        held_out = self._batches(0, 1, equally_many=False)
        return baselines(self._data, symbols, held_out, check_shards=self._recipe.train.check_shards)

    def _batches(self, rank: int, world_size: int, *, equally_many: bool) -> Iterator[Arrays]:
        config, objective = self._recipe.train, self._recipe.objective
        if isinstance(objective, MaskedObjective):
            objective = self._recipe.objective.for_validation()
        return validation_batches(
            self._data,
            collator=objective.collator(self._vocabulary, config.length, VALIDATION_SEED),
            num_windows=config.validation_windows,
            batch=min(_MOST, config.micro_batch or _MOST),
            rank=rank,
            world_size=world_size,
            together=equally_many,
            check_shards=config.check_shards,
        )
