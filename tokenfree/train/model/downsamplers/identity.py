"""No DOWN: every character is a unit."""

from typing import Literal

import torch
from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, Downsampled, Grouping
from tokenfree.train.model.common.slots import Downsampler, DownsamplerConfig


@settings
class Config(DownsamplerConfig):
    """No downsampling: every character is a unit, as in a BERT over characters (arXiv 2103.06874, Table 2, r = 1)."""

    name: Literal["identity"] = "identity"

    def build(self, dimensions: Dimensions) -> "NoDownsampling":
        return NoDownsampling()

    def num_units(self, length: int) -> int:
        return length


class NoDownsampling(Downsampler):
    def forward(self, x_BCD: Tensor, mask_BC: Tensor) -> Downsampled:
        grouping = Grouping(torch.arange(x_BCD.shape[1], device=x_BCD.device)[None])
        return Downsampled(x_BCD, mask_BC, grouping, x_BCD)

    def num_units(self, num_characters: int) -> int:
        return num_characters

    def costs(self, length: int) -> list[Cost]:
        return []
