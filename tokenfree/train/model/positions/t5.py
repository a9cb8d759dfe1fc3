"""T5's relative positions: each head adds a learned scalar per bucket of offsets.

N buckets
"""

import math
from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import OffsetBias
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import Positions, Sharing, SharingConfig, TrunkConfig, table_counts


@settings
class Config(SharingConfig):
    """T5's relative position biases (Raffel et al., arXiv 1910.10683, section 2.1), for both directions.

    Attributes:
        buckets: number of offset buckets, a multiple of 4: half for each sign, and half of these for one
            offset each.
        max_distance: distance in units from which all offsets of a sign share a bucket, at least 2.
    """

    name: Literal["t5"] = "t5"
    buckets: Annotated[int, Field(ge=4, multiple_of=4)] = 32
    max_distance: Annotated[int, Field(ge=2)] = 128
    sharing: Sharing = "layer_wise"

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "T5":
        return T5(self, dimensions, trunk.layers)

    def check(self, trunk: TrunkConfig, num_units: int | None) -> Iterable[str]:
        if self.max_distance <= self.buckets // 4:
            yield (
                f"model.trunk.positions.max_distance: {self.max_distance} lies among the exact buckets; "
                f"use more than {self.buckets // 4} or fewer buckets"
            )


class T5(Positions):
    """Scalars per bucket. Half of a sign's buckets hold one offset each; the others grow logarithmically."""

    stacked = {"by_bucket_LHN": 0}  # see train/optimizers/base.py

    def __init__(self, config: Config, dimensions: Dimensions, num_layers: int) -> None:
        super().__init__()
        self.num_heads, self.max_distance = dimensions.heads, config.max_distance
        counts = table_counts(config.sharing, num_layers, dimensions.heads)
        self.by_bucket_LHN = nn.Parameter(torch.zeros(*counts, config.buckets))

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[OffsetBias]:
        num_units = units_BUD.shape[1]
        offsets_O = torch.arange(1 - num_units, num_units, device=units_BUD.device)
        buckets_O = bucket(offsets_O, self.by_bucket_LHN.shape[2], self.max_distance)
        rows = self.by_bucket_LHN.index_select(2, buckets_O).unbind(0)
        return [OffsetBias(row, self.num_heads) for row in rows]

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        return 0


def bucket(offsets: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each offset key - query, int64.

    Equals `_relative_position_bucket` of transformers' bidirectional T5, also in the logarithm's dtype,
    float32.
    """
    half, exact = num_buckets // 2, num_buckets // 4
    distance = offsets.abs()
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    logarithmic = (exact + (ratio * (half - exact)).to(torch.int64)).clamp(max=half - 1)
    return torch.where(distance < exact, distance, logarithmic) + half * (offsets > 0)
