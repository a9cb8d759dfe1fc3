"""Every combination of the values of all knobs."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from preprocess.settings import settings
from train.sweep import space as spaces
from train.sweep.history import History
from train.sweep.space import Values

if TYPE_CHECKING:
    from train.sweep.config import SweepRecipe


@settings
class Config:
    name: Literal["grid"] = "grid"

    def check(self, sweep: "SweepRecipe") -> Iterable[str]:
        """The mistake of a knob whose values cannot be listed."""
        for key, knob in sweep.space.items():
            if knob.listed is None:
                yield f"space: {key}: a grid needs a list of values; give it as choice, or take another searcher"

    def candidates(self, sweep: "SweepRecipe", history: History) -> Iterator[Values]:
        """All settings, in the order of the lists; knobs that play no part make no settings of their own."""
        for drawn in spaces.products(sweep.space):
            yield spaces.active(sweep.space, drawn, sweep.fixed)
