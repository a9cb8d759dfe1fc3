"""UP of Byte2Word: a vector for each subword slot of a word.

B batch, C characters, P targets, U units, D width
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, Grouping, count_parameters
from tokenfree.train.model.common.slots import Upsampler, UpsamplerConfig
from tokenfree.train.model.upsamplers.identity import gather_rows


@settings
class Config(UpsamplerConfig):
    """Subword queries of Byte2Word (Lee, Guo, Qiu, arXiv 2211.12677, section 3): H_ij = H_i + P_j for slot j of word i.

    Attributes:
        max_pieces: slots of a word, at least 1.
    """

    name: Literal["subword_queries"] = "subword_queries"
    max_pieces: Annotated[int, Field(ge=1)] = 16

    def build(self, dimensions: Dimensions) -> "SubwordQueries":
        return SubwordQueries(self.max_pieces, dimensions.width)


class SubwordQueries(Upsampler):
    """Adds the vector of a slot to that of a unit: for training only, thrown away with the subwords."""

    def __init__(self, max_pieces: int, width: int) -> None:
        super().__init__()
        self.slots = nn.Embedding(max_pieces, width)

    def forward(
        self,
        units_BUD: Tensor,
        grouping: Grouping,
        characters_BCD: Tensor,
        mask_BC: Tensor,
        targets_BP: Tensor | None = None,
    ) -> Tensor:
        """Rows [B, P, D] of the pairs (unit, slot) in `targets_BP`, int64 [B, P, 2].

        Where targets are single numbers they are characters (all of them where there are no targets), and each has the
        first slot of its unit.
        """
        if targets_BP is not None and targets_BP.dim() == 3:
            return gather_rows(units_BUD, targets_BP[..., 0]) + self.slots(targets_BP[..., 1])
        unit_BC = grouping.unit_BC.expand(units_BUD.shape[0], -1)
        if targets_BP is not None:
            unit_BC = unit_BC.gather(1, targets_BP)
        return gather_rows(units_BUD, unit_BC) + self.slots(torch.zeros_like(unit_BC))

    def costs(self, length: int, num_targets: int | None, num_units: int) -> list[Cost]:
        rows = length if num_targets is None else num_targets
        return [Cost("subword slots", (rows, self.slots.embedding_dim), count_parameters(self.slots), 0)]
