"""Settings drawn at random, independently of each other (Bergstra and Bengio 2012)."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from preprocess.settings import settings
from train.data import random
from train.sweep import space as spaces
from train.sweep.history import History
from train.sweep.space import Values

if TYPE_CHECKING:
    from train.sweep.config import SweepRecipe


@settings
class Config:
    name: Literal["random"] = "random"

    def check(self, sweep: "SweepRecipe") -> Iterable[str]:
        return []

    def candidates(self, sweep: "SweepRecipe", history: History) -> Iterator[Values]:
        """Endless settings, each a function of the seed and its index alone."""
        keys = sorted(sweep.space)
        for number in itertools.count():
            draws = random.uniform(sweep.seed, "sweep settings", np.array([number]), len(keys))[0]
            yield spaces.at_quantiles(sweep.space, dict(zip(keys, map(float, draws), strict=True)), sweep.fixed)
