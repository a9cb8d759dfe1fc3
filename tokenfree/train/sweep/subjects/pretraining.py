"""Pretraining as a sweep tries it: on the windows of a data directory, judged by the held-out loss."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from tokenfree.core.settings import to_mapping, value_at
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Arrays
from tokenfree.train.config import PretrainRecipe, check
from tokenfree.train.data.loader import Loader
from tokenfree.train.data.mixture import Data, load_data_manifest, load_data_vocabulary
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.step import Task, pretraining_task

_MEASURE = ("objective", "train.length", "train.validation_windows")  # what decides on validation samples and masks
_SAMPLED = 256  # examples, by which arithmetic is estimated


@dataclasses.dataclass(frozen=True)
class PretrainingSubject:
    """See `tokenfree.train.sweep.subjects.base.Subject`. `data` is a data directory or several."""

    data: Data

    @functools.cached_property
    def _manifest(self) -> Manifest:
        return load_data_manifest(self.data)

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary | None:
        return load_data_vocabulary(self.data)

    @property
    def content(self) -> str:
        """See `Subject.content`."""
        return self._manifest.fingerprint

    @property
    def parts(self) -> Data:
        """The paths or addresses."""
        return self.data

    def problems(self, recipe: PretrainRecipe, workers: tuple[int, int]) -> list[str]:
        """See `Subject.problems`."""
        return check(recipe, self._manifest, workers=workers, vocabulary=self._vocabulary)

    def measure(self, recipe: PretrainRecipe) -> Mapping[str, Any]:
        """See `Subject.measure`."""
        mapping = to_mapping(recipe)
        return {key: value_at(mapping, key) for key in _MEASURE}

    def make_loop(self, recipe: PretrainRecipe, *, rank: int = 0, world_size: int = 1, device: str = "cpu") -> Loop:
        """See `Subject.make_loop`."""
        return Loop(recipe, self.data, rank=rank, world_size=world_size, device=device)

    def first_loop(self, recipe: PretrainRecipe) -> None:
        """None: trials begin with fresh weights."""

    def batch(self, recipe: PretrainRecipe) -> Arrays:
        """See `Subject.batch`."""
        train = recipe.train
        loader = Loader(
            self.data,
            global_batch=_SAMPLED,
            seed=train.seed,
            smoothing=train.smoothing,
            streams=1,
            collator=recipe.objective.collator(self._vocabulary, train.length, train.seed),
        )
        return loader.batch(0)

    def build(self, recipe: PretrainRecipe) -> Task:
        """See `Subject.build`."""
        return pretraining_task(recipe, self._vocabulary.size if self._vocabulary is not None else 0)

    def judged(self, badness: float) -> dict[str, float]:
        """Nothing: the held-out loss of the last validation counts."""
        return {}
