"""DOWN by the mean of so many characters, in the place of CANINE's convolution.

B batch, U units, X values of a group of characters, D width
"""

from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, count_parameters
from tokenfree.train.model.downsamplers.strided import Strided, StridedConfig


@settings
class Config(StridedConfig):
    """Mean pooling, which the code of CANINE (arXiv 2103.06874) says was tried in place of its convolution, and
    diverged. Local layers, CLS and LayerNorm are as those of `strided_conv`.
    """

    name: Literal["strided_mean"] = "strided_mean"

    def build(self, dimensions: Dimensions) -> "StridedMean":
        return StridedMean(dimensions, self)


class StridedMean(Strided):
    """The mean of the vectors of `rate` characters, which knows nothing of their order."""

    def pool(self, groups_BUX: Tensor) -> Tensor:
        """The mean of each group, brought to the width of the units as CLS is: [B, U, D]."""
        return self.widened(groups_BUX.unflatten(-1, (self.rate, -1)).mean(dim=-2))

    def pooling_cost(self, num_units: int) -> Cost:
        parameters = count_parameters(self.widen, self.norm)
        width = self.norm.normalized_shape[0]
        widened = 0 if isinstance(self.widen, nn.Identity) else num_units * self.widen.in_features * width
        return Cost("mean + norm", (num_units, width), parameters, widened)
