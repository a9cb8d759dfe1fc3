"""No position encoding in the trunk, as in CANINE: only the content of units shows their position."""

from typing import Literal

from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import Positions, PositionsConfig, TrunkConfig


@settings
class Config(PositionsConfig):
    """No position encoding inside the trunk, as in CANINE (Clark et al., arXiv 2103.06874, section 3)."""

    name: Literal["none"] = "none"

    takes_mixtures = True

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "NoPositions":
        return NoPositions()


class NoPositions(Positions):
    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> None:
        return None

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        return 0
