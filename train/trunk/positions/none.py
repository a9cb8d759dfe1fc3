"""No position code in the trunk, as in CANINE: units know their place by their content only.

A position code is called once per forward pass with the units [B, U, D] and their validity [B, U]. It returns None or
a function (layer, heads, queries, keys) of the index of a layer, a slice of heads and two index tensors, which gives
the logit bias of these pairs of units (see `train.layers.PairBias`). Patterns ask for the pairs that they show and no
others. What is shared by all layers is computed in the call, once.
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

    def build(self, dimensions: Dimensions, num_layers: int) -> "NoPositions":
        return NoPositions()

    def check(self, trunk: "TrunkConfig", length: int | None) -> Iterable[str]:
        return ()


class NoPositions(nn.Module):
    """Adds nothing to any logit."""

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> None:
        return None
