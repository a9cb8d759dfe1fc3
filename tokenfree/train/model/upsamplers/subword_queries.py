"""UP of Byte2Word: one vector per subword slot of a word."""

from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.basic import Cost, Dimensions, Grouping, count_parameters, gather_rows
from tokenfree.train.model.common.slots import UpsamplerConfig
from tokenfree.train.model.upsamplers.identity import NoUpsampling


@settings
class Config(UpsamplerConfig):
    """Subword queries of Byte2Word (Lee, Guo, Qiu, arXiv 2211.12677, section 3): H_ij = H_i + P_j for slot j of word i.

    Attributes:
        max_pieces: number of subword slots per word.
    """

    name: Literal["subword_queries"] = "subword_queries"
    max_pieces: Positive = 16

    def build(self, dimensions: Dimensions) -> "SubwordQueries":
        return SubwordQueries(self.max_pieces, dimensions.width)


class SubwordQueries(NoUpsampling):
    """An upsampler that adds the vector of a slot to that of a unit.

    Only training needs it, as it needs subwords.
    """

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
        """Return rows for `targets_BP`: (unit, slot), or characters, which get the first slot. None: all."""
        if targets_BP is not None and targets_BP.dim() == 3:
            return gather_rows(units_BUD, targets_BP[..., 0]) + self.slots(targets_BP[..., 1])
        vectors = super().forward(units_BUD, grouping, characters_BCD, mask_BC, targets_BP)
        return vectors + self.slots(torch.zeros(vectors.shape[:2], dtype=torch.int64, device=vectors.device))

    def costs(self, length: int, num_targets: int | None, num_units: int) -> list[Cost]:
        rows = length if num_targets is None else num_targets
        return [Cost("subword slots", (rows, self.slots.embedding_dim), count_parameters(self.slots), 0)]
