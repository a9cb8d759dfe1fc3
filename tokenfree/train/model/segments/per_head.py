"""Segment attention of DIET: each head adds a scalar per pair of segments.

S segments
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import FactorBias
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import SegmentsConfig, Sharing, TrunkConfig, table_counts


@settings
class Config(SegmentsConfig):
    """Segment attention of DIET (Chen et al., arXiv 2104.08698, section 3.3): a scalar per pair of segments.

    Attributes:
        num_segments: number of segments of an example, at least 2.
        sharing: sharing of scalars between heads or layers, as for positions; null: same as the positions.
    """

    name: Literal["per_head"] = "per_head"
    num_segments: Annotated[int, Field(ge=2)] = 2
    sharing: Sharing | None = None

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "PerHeadSegments":
        return PerHeadSegments(
            self.num_segments, self.sharing or trunk.positions.sharing, dimensions, trunk.layers
        )

    def check(self, trunk: TrunkConfig) -> Iterable[str]:
        if trunk.attention.num_mixtures is not None:
            yield (
                f"model.trunk.segments.name: the projected keys of {trunk.attention.name} have no segment; use none, "
                "and segments at the input"
            )


class PerHeadSegments(nn.Module):
    """A table per layer and head: rows are segments of queries, columns segments of keys.

    It need not be symmetric.
    """

    stacked = {"table_LHSS": 0}  # see train/optimizers/base.py

    def __init__(self, num_segments: int, sharing: Sharing, dimensions: Dimensions, num_layers: int) -> None:
        super().__init__()
        self.num_heads = dimensions.heads
        counts = table_counts(sharing, num_layers, dimensions.heads)
        self.table_LHSS = nn.Parameter(torch.zeros(*counts, num_segments, num_segments))

    def forward(self, segments_BU: Tensor) -> list[FactorBias]:
        every_segment = torch.eye(
            self.table_LHSS.shape[-1], dtype=self.table_LHSS.dtype, device=segments_BU.device
        )
        flags_B1US = nn.functional.embedding(segments_BU, every_segment)[:, None]
        # A product, because the backward pass of a look-up would add gradients pair by pair.
        return [
            FactorBias(flags_B1US @ table_HSS, flags_B1US, self.num_heads) for table_HSS in self.table_LHSS
        ]
