"""UP without the concatenation: a convolution over repeated units, with optional residuals."""

from typing import Literal

from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions, Grouping
from tokenfree.train.model.upsamplers.repeat_concat import Options, RepeatConcat, convolve_units, repeat_units


@settings
class Config(Options):
    """Upsampling without the concatenation (CANINE, Clark et al., arXiv 2103.06874, Table 4).

    Attributes:
        residual_characters: add the characters returned by DOWN.
        residual_units: add the repeated units.
    """

    name: Literal["repeat_add"] = "repeat_add"
    residual_characters: bool = False
    residual_units: bool = False

    def build(self, dimensions: Dimensions) -> "RepeatAdd":
        return RepeatAdd(self, dimensions)


class RepeatAdd(RepeatConcat):
    """LN(GELU(conv(repeated units)) + residuals), then the final layer."""

    def __init__(self, config: Config, dimensions: Dimensions) -> None:
        super().__init__(config, dimensions, num_channels=dimensions.width)
        self.residual_characters, self.residual_units = config.residual_characters, config.residual_units

    def convolve(self, units_BUD: Tensor, grouping: Grouping, characters_BCD: Tensor) -> Tensor:
        convolved_BCD = convolve_units(units_BUD, grouping, self.convolution.weight, characters_BCD.shape[1])
        assert self.convolution.bias is not None
        return convolved_BCD + self.convolution.bias

    def add_residuals(
        self, h_BCD: Tensor, units_BUD: Tensor, grouping: Grouping, characters_BCD: Tensor
    ) -> Tensor:
        if self.residual_characters:
            h_BCD = h_BCD + characters_BCD
        if self.residual_units:
            h_BCD = h_BCD + repeat_units(units_BUD, grouping)
        return h_BCD
