"""Segment attention of DIET: each head adds a scalar for the two units' segments (Chen et al. 2021, section 3.3).

B batch, U units, H heads, L layers, S segments
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.layers import Dimensions
from train.trunk.positions.biases import FactorBias
from train.trunk.positions.sharing import Sharing, for_layers, table_counts

if TYPE_CHECKING:
    from train.trunk import TrunkConfig


@settings
class Config:
    name: Literal["per_head"] = "per_head"
    num_segments: Annotated[int, Field(ge=2)] = 2
    sharing: Sharing | None = None  # as the positions

    def build(self, dimensions: Dimensions, trunk: "TrunkConfig") -> "PerHeadSegments":
        sharing: Sharing = self.sharing or getattr(trunk.positions, "sharing", "none")
        return PerHeadSegments(self.num_segments, sharing, dimensions, trunk.layers)

    def check(self, trunk: "TrunkConfig") -> Iterable[str]:
        if trunk.attention.name == "linformer":
            yield (
                "model.trunk.segments.name: the projected keys of linformer have no segment; use none, and segments at "
                "the input"
            )


class PerHeadSegments(nn.Module):
    """A table for each layer and head: row of the query's segment, column of the key's. It need not be symmetric."""

    def __init__(self, num_segments: int, sharing: Sharing, dimensions: Dimensions, num_layers: int) -> None:
        super().__init__()
        self.num_layers, self.num_heads = num_layers, dimensions.heads
        counts = table_counts(sharing, num_layers, dimensions.heads)
        self.table_LHSS = nn.Parameter(torch.zeros(*counts, num_segments, num_segments))

    def forward(self, segments_BU: Tensor) -> list[FactorBias]:
        """Segments int64 [B, U]; IndexError for those past the table."""
        every_segment = torch.eye(self.table_LHSS.shape[-1], dtype=self.table_LHSS.dtype, device=segments_BU.device)
        flags_B1US = F.embedding(segments_BU, every_segment)[:, None]
        # As a product: the gradient of a look-up would be gathered pair by pair.
        biases = [FactorBias(flags_B1US @ table_HSS, flags_B1US, self.num_heads) for table_HSS in self.table_LHSS]
        return for_layers(biases, self.num_layers)
