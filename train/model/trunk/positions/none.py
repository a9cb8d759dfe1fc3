"""No position code in the trunk, as in CANINE: units know their place by their content only.

A position code is called once per forward pass with the units [B, U, D] and their validity [B, U]. It returns None or
for each layer a `train.pair_bias.LayerBias`, the same object for all layers that share. Patterns ask it for the pairs
that they show and no others; a pattern that shows all asks for all at once, which is computed once for an object.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from preprocess.settings import settings
from train.layers import Dimensions

if TYPE_CHECKING:
    from train.trunk import TrunkConfig


@settings
class Config:
    name: Literal["none"] = "none"

    def build(self, dimensions: Dimensions, trunk: "TrunkConfig") -> "NoPositions":
        return NoPositions()

    def check(self, trunk: "TrunkConfig", num_units: int | None) -> Iterable[str]:
        return ()


class NoPositions(nn.Module):
    """Adds nothing to any logit."""

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> None:
        return None

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        """Of one forward; `pairs` are the visible ones of each layer, summed over heads."""
        return 0
