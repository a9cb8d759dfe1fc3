"""Every combination of the values of all knobs."""

from collections.abc import Iterable, Iterator
from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.sweep.control.history import History
from tokenfree.train.sweep.control.slots import Searcher
from tokenfree.train.sweep.space import knobs as spaces
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import SweepRecipe


@settings
class Config(Searcher):
    """The product of the lists of values of all knobs: a full factorial design.

    Its size is the product of the sizes of the lists; Bergstra and Bengio 2012, "Random Search for Hyper-Parameter
    Optimization", JMLR 13, show why `random` and `even` find as good settings in fewer trials.

    Attributes:
        name: `grid`.
    """

    name: Literal["grid"] = "grid"

    def problems(self, sweep: SweepRecipe) -> Iterable[str]:
        """Knobs whose values cannot be listed."""
        for key, knob in sweep.space.items():
            if knob.listed is None:
                yield f"space: {key}: a grid needs a list of values; give it as choice, or take another searcher"

    def is_finite(self) -> bool:
        """Yes."""
        return True

    def candidates(self, sweep: SweepRecipe, history: History) -> Iterator[Values]:
        """All settings, in the order of the lists; knobs that play no part make no settings of their own."""
        for drawn in spaces.products(sweep.space):
            yield spaces.active(sweep.space, drawn, sweep.fixed)
