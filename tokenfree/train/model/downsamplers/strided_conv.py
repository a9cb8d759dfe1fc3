"""DOWN of CANINE: local attention over blocks of characters, then a strided convolution.

X values of a group of characters
"""

from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, activate, count_parameters, linear
from tokenfree.train.model.downsamplers.strided import Strided, StridedConfig


@settings
class Config(StridedConfig):
    """Downsampling of CANINE (Clark et al., arXiv 2103.06874, section 3.1): local layers and a strided convolution."""

    name: Literal["strided_conv"] = "strided_conv"

    def build(self, dimensions: Dimensions) -> "StridedConv":
        return StridedConv(dimensions, self)


class StridedConv(Strided):
    def add_pooling(self, narrow: int, width: int) -> None:
        self.convolution = nn.Conv1d(narrow, width, self.rate, stride=self.rate)

    def pool(self, groups_BUX: Tensor) -> Tensor:
        """Return GELU(W x + b) of each group, [B, U, D] (arXiv 2103.06874, equation of section 3.1)."""
        kernel_DX = self.convolution.weight.transpose(1, 2).flatten(1)
        return activate(linear(groups_BUX, kernel_DX, self.convolution.bias), self.activation)

    def pooling_cost(self, num_units: int) -> Cost:
        narrow, width = self.convolution.in_channels, self.convolution.out_channels
        multiply_accumulates = num_units * self.rate * narrow * width
        if narrow != width:
            multiply_accumulates += narrow * width  # CLS
        parameters = count_parameters(self.convolution, self.widen, self.norm)
        return Cost("down convolution + norm", (num_units, width), parameters, multiply_accumulates)
