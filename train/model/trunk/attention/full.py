"""Full attention: every unit sees every valid unit."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from preprocess.settings import settings
from train.layers import Dimensions, FullAttention

if TYPE_CHECKING:
    from train.trunk import TrunkConfig


@settings
class Config:
    name: Literal["full"] = "full"

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> FullAttention:
        """The core of layer `layer` (0 is the lowest) of `num_layers`."""
        return FullAttention(dimensions.dropout)

    def check(self, trunk: "TrunkConfig", length: int | None) -> Iterable[str]:
        return ()
