"""DOWN by the mean of `rate` characters, instead of CANINE's convolution.

X values of a group of characters
"""

from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, count_parameters
from tokenfree.train.model.downsamplers.strided import Strided, StridedConfig


@settings
class Config(StridedConfig):
    """Mean pooling instead of CANINE's convolution.

    According to CANINE's code (arXiv 2103.06874) it was tried and diverged. Local layers, CLS and LayerNorm
    are the same as in `strided_conv`.
    """

    name: Literal["strided_mean"] = "strided_mean"

    def build(self, dimensions: Dimensions) -> "StridedMean":
        return StridedMean(dimensions, self)


class StridedMean(Strided):
    """Mean of the vectors of `rate` characters, which ignores their order."""

    def pool(self, groups_BUX: Tensor) -> Tensor:
        return self.widened(groups_BUX.unflatten(-1, (self.rate, -1)).mean(dim=-2))

    def pooling_cost(self, num_units: int) -> Cost:
        parameters = count_parameters(self.widen, self.norm)
        width = self.norm.normalized_shape[0]
        widened = 0 if isinstance(self.widen, nn.Identity) else num_units * self.widen.in_features * width
        return Cost("mean + norm", (num_units, width), parameters, widened)
