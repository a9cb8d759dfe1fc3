"""UP without the concatenation, as in CANINE's Table 4: convolved repeated units, to which residuals may be added.

B batch, C characters, U units, D width
"""

from typing import Any, Literal

from torch import Tensor

from preprocess.settings import settings
from train.downsamplers.grouping import Grouping
from train.layers import Dimensions
from train.upsamplers.repeat_concat import Options, RepeatConcat, convolve_units, repeat_units


@settings
class Config(Options):
    name: Literal["repeat_add"] = "repeat_add"
    residual_characters: bool = False  # add the characters from before DOWN
    residual_units: bool = False  # add the repeated units

    def build(self, dimensions: Dimensions) -> "RepeatAdd":
        return RepeatAdd(self, dimensions)

    def check(self, downsampler: Any) -> list[str]:
        return []


class RepeatAdd(RepeatConcat):
    """LN(GELU(conv(repeated units)) + residuals), then the final layer."""

    def __init__(self, config: Config, dimensions: Dimensions) -> None:
        super().__init__(config, dimensions, num_channels=dimensions.width)
        self.residual_characters, self.residual_units = config.residual_characters, config.residual_units

    def convolve(self, units_BUD: Tensor, grouping: Grouping, characters_BCD: Tensor) -> Tensor:
        """The convolution over the repeated units alone, [B, C, D]."""
        convolved_BCD = convolve_units(units_BUD, grouping, self.convolution.weight, characters_BCD.shape[1])
        assert self.convolution.bias is not None
        return convolved_BCD + self.convolution.bias

    def add_residuals(self, h_BCD: Tensor, units_BUD: Tensor, grouping: Grouping, characters_BCD: Tensor) -> Tensor:
        """With the residuals of the config."""
        if self.residual_characters:
            h_BCD = h_BCD + characters_BCD
        if self.residual_units:
            h_BCD = h_BCD + repeat_units(units_BUD, grouping)
        return h_BCD
