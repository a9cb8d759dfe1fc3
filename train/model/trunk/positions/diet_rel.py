"""DIET-REL: each head adds a learned scalar for every offset of two units (Chen et al. 2021, equation 6).

H heads, L layers, O offsets
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.layers import Dimensions
from train.trunk.positions.biases import OffsetBias
from train.trunk.positions.sharing import (
    Sharing,
    for_layers,
    needs_own_queries,
    refuse_more_units,
    table_counts,
    too_many,
)

if TYPE_CHECKING:
    from train.trunk import TrunkConfig


@settings
class Config:
    name: Literal["diet_rel"] = "diet_rel"
    sharing: Sharing = "none"
    max_units: Annotated[int, Field(ge=1)] = 512
    scale: Literal["head_width", "width"] = "head_width"  # whose root divides the logits of the content

    def build(self, dimensions: Dimensions, trunk: "TrunkConfig") -> "DietRel":
        return DietRel(self, dimensions, trunk.layers)

    def check(self, trunk: "TrunkConfig", num_units: int | None) -> Iterable[str]:
        yield from too_many(self.max_units, num_units)
        if self.scale == "width":
            yield from needs_own_queries(trunk)


class DietRel(nn.Module):
    """Scalars for the offsets key - query from -(max_units - 1) to max_units - 1, without bins and clipping."""

    def __init__(self, config: Config, dimensions: Dimensions, num_layers: int) -> None:
        super().__init__()
        self.num_layers, self.num_heads, self.max_units = num_layers, dimensions.heads, config.max_units
        counts = table_counts(config.sharing, num_layers, dimensions.heads)
        self.by_offset_LHO = nn.Parameter(torch.zeros(*counts, 2 * config.max_units - 1))
        self.query_factor = dimensions.heads**-0.5 if config.scale == "width" else 1.0

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[OffsetBias]:
        num_units = units_BUD.shape[1]
        refuse_more_units(num_units, self.max_units)
        reachable = slice(self.max_units - num_units, self.max_units + num_units - 1)
        biases = [OffsetBias(row, self.num_heads) for row in self.by_offset_LHO[:, :, reachable].unbind(0)]
        for bias in biases:
            bias.query_factor = self.query_factor
        return for_layers(biases, self.num_layers)

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        """Scalars are only added."""
        return 0
