"""Settings that cover the space evenly: the first n of them are spread well whatever n is."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import torch

from preprocess.settings import settings
from train.sweep import space as spaces
from train.sweep.history import History
from train.sweep.space import Values

if TYPE_CHECKING:
    from train.sweep.config import SweepRecipe

_BELOW_1 = 1 - 2.0**-53


@settings
class Config:
    """Scrambled points of Sobol (Owen 1998; Joe and Kuo 2008), a dimension a knob."""

    name: Literal["even"] = "even"

    def check(self, sweep: "SweepRecipe") -> Iterable[str]:
        return []

    def candidates(self, sweep: "SweepRecipe", history: History) -> Iterator[Values]:
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
