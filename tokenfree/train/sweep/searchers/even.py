"""Settings that cover the space evenly: the first n of them are spread well whatever n is."""

import itertools
from collections.abc import Iterator
from typing import Literal

import torch

from tokenfree.core.settings import settings
from tokenfree.train.sweep.control.history import History
from tokenfree.train.sweep.control.slots import Searcher
from tokenfree.train.sweep.space import knobs as spaces
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import SweepRecipe

_BELOW_1 = 1 - 2.0**-53


@settings
class Config(Searcher):
    """The points of a scrambled Sobol sequence, with a dimension for each knob.

    Sobol 1967, with the directions of Joe and Kuo 2008, "Constructing Sobol Sequences with Better Two-Dimensional
    Projections"; scrambled as in Owen 1998, "Scrambling Sobol' and Niederreiter-Xing Points".

    Attributes:
        name: `even`.
    """

    name: Literal["even"] = "even"

    def candidates(self, sweep: SweepRecipe, history: History) -> Iterator[Values]:
        """Endless settings, each a function of the seed and its index: more trials keep those before.

        Grids are gone through in turn, every combination of their values with values of its own for the other knobs.
        """
        keys = sorted(sweep.space)
        points = torch.quasirandom.SobolEngine(len(keys), scramble=True, seed=sweep.seed)
        grid = {key: knob for key, knob in sweep.space.items() if knob.grid is not None}
        combinations = list(spaces.products(grid)) or [{}]
        for number in itertools.count():
            point = points.draw(dtype=torch.float64)[0].clamp(max=_BELOW_1).tolist()
            quantiles = dict(zip(keys, point, strict=True))
            drawn = {key: knob.value(quantiles[key]) for key, knob in sweep.space.items()}
            yield spaces.active(sweep.space, {**drawn, **combinations[number % len(combinations)]}, sweep.fixed)
