"""No segments in the trunk: they are added at the input, by the embedder, or not at all.

Segments of the trunk are called once per forward pass with the segments of units [B, U] and return None or a
`train.pair_bias.LayerBias` for each layer, as position codes do.
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

    def build(self, dimensions: Dimensions, trunk: "TrunkConfig") -> "NoSegments":
        return NoSegments()

    def check(self, trunk: "TrunkConfig") -> Iterable[str]:
        return ()


class NoSegments(nn.Module):
    """Adds nothing to any logit."""

    def forward(self, segments_BU: Tensor) -> None:
        return None
