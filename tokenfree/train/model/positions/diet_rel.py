"""DIET-REL: each head adds a learned scalar per offset of two units."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import OffsetBias
from tokenfree.train.model.common.basic import Dimensions, refuse_more, too_many
from tokenfree.train.model.common.slots import (
    MAX_UNITS,
    Positions,
    SharingConfig,
    TrunkConfig,
    needs_own_queries,
    table_counts,
)


@settings
class DietConfig(SharingConfig):
    """Settings that both encodings of DIET share.

    Attributes:
        max_units: maximum number of units of an example.
        scale: size whose square root divides the content's logits: `head_width`; or `width`, as printed in
            the paper.
    """

    max_units: Positive = 512
    scale: Literal["head_width", "width"] = "head_width"

    def check(self, trunk: TrunkConfig, num_units: int | None) -> Iterable[str]:
        yield from too_many(num_units, self.max_units, "units", MAX_UNITS)
        if self.scale == "width":
            yield from needs_own_queries(trunk)

    def query_factor(self, dimensions: Dimensions) -> float:
        return dimensions.heads**-0.5 if self.scale == "width" else 1.0


@settings
class Config(DietConfig):
    """DIET-REL (Chen et al., arXiv 2104.08698, equation 6): each head adds a learned scalar per offset."""

    name: Literal["diet_rel"] = "diet_rel"

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "DietRel":
        return DietRel(self, dimensions, trunk.layers)


class DietRel(Positions):
    """Scalars for offsets key - query from -(max_units - 1) to max_units - 1, without binning or clipping."""

    stacked = {"by_offset_LHO": 0}  # see train/optimizers/base.py

    def __init__(self, config: Config, dimensions: Dimensions, num_layers: int) -> None:
        super().__init__()
        self.num_heads, self.max_units = dimensions.heads, config.max_units
        counts = table_counts(config.sharing, num_layers, dimensions.heads)
        self.by_offset_LHO = nn.Parameter(torch.zeros(*counts, 2 * config.max_units - 1))
        self.query_factor = config.query_factor(dimensions)

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[OffsetBias]:
        num_units = units_BUD.shape[1]
        refuse_more(num_units, self.max_units, "units", MAX_UNITS)
        reachable = slice(self.max_units - num_units, self.max_units + num_units - 1)
        return [
            OffsetBias(row, self.num_heads, query_factor=self.query_factor)
            for row in self.by_offset_LHO[:, :, reachable].unbind(0)
        ]

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        return 0
