"""Settings drawn at random, independently of each other."""

import itertools
from collections.abc import Iterator
from typing import Literal

import numpy as np

from tokenfree.core.settings import settings
from tokenfree.train.batches import counter_random as random
from tokenfree.train.sweep.control.history import History
from tokenfree.train.sweep.control.slots import Searcher
from tokenfree.train.sweep.space import knobs as spaces
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import SweepRecipe


@settings
class Config(Searcher):
    """Each knob's value drawn from its own distribution, independently.

    Bergstra and Bengio 2012, "Random Search for Hyper-Parameter Optimization", JMLR 13.

    Attributes:
        name: `random`.
    """

    name: Literal["random"] = "random"

    def candidates(self, sweep: SweepRecipe, history: History) -> Iterator[Values]:
        """Endless settings, each a function of the seed and its index alone."""
        keys = sorted(sweep.space)
        for number in itertools.count():
            draws = random.uniform(sweep.seed, "sweep settings", np.array([number]), len(keys))[0]
            yield spaces.at_quantiles(sweep.space, dict(zip(keys, map(float, draws), strict=True)), sweep.fixed)
