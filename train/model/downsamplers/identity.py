"""No DOWN: every character is a unit."""

from typing import Literal

import torch
from torch import Tensor, nn

from preprocess.settings import settings
from train.downsamplers.grouping import Downsampled, Grouping
from train.layers import Cost, Dimensions


@settings
class Config:
    name: Literal["identity"] = "identity"

    def build(self, dimensions: Dimensions) -> "Identity":
        return Identity()

    def check(self, length: int | None) -> list[str]:
        return []

    def num_units(self, length: int) -> int:
        return length


class Identity(nn.Module):
    """Passes the characters on."""

    min_characters = 1

    def forward(self, x_BCD: Tensor, mask_BC: Tensor) -> Downsampled:
        grouping = Grouping(torch.arange(x_BCD.shape[1], device=x_BCD.device)[None])
        return Downsampled(x_BCD, mask_BC, grouping, x_BCD)

    def num_units(self, num_characters: int) -> int:
        return num_characters

    def costs(self, length: int) -> list[Cost]:
        return []
