"""Linformer: attention to K mixtures of all units, in time and memory linear in the length.

K mixtures
"""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import Core, Heads
from tokenfree.train.model.common.basic import Dimensions, refuse_more, too_many
from tokenfree.train.model.common.slots import AttentionConfig, TrunkConfig

MAX_UNITS = "model.trunk.attention.max_units"


@settings
class Config(AttentionConfig):
    """Linformer (Wang et al., arXiv 2006.04768, section 4), with one projection for keys, values and all heads.

    The combination with positions `diet_abs` is DIET-ABS-LIN (Chen et al., arXiv 2104.08698).

    Attributes:
        projection: number K of mixtures that a unit attends to.
        max_units: maximum number of units of an example; each unit has a weight in each mixture.
    """

    name: Literal["linformer"] = "linformer"
    projection: Positive = 32
    max_units: Positive = 512

    @property
    def num_mixtures(self) -> int:
        return self.projection

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> "LinformerAttention":
        return LinformerAttention(self, dimensions.dropout)

    def check(self, trunk: TrunkConfig, num_units: int | None) -> Iterable[str]:
        if not trunk.positions.takes_mixtures:
            yield (
                f"model.trunk.positions.name: {trunk.positions.name} is not defined with linformer, whose keys have "
                "no place; use none or diet_abs, or positions of the embedder"
            )
        yield from too_many(num_units, self.max_units, "units", MAX_UNITS)


class LinformerAttention(Core):
    """Attention to keys and values projected from E X, with one matrix E [K, max_units] for both and all heads."""

    def __init__(self, config: Config, dropout: float) -> None:
        super().__init__(dropout)
        self.max_units = config.max_units
        self.mixtures_KU = nn.Parameter(
            torch.randn(config.projection, config.max_units) * config.max_units**-0.5
        )

    def source(self, x_BUD: Tensor, valid_BU: Tensor) -> tuple[Tensor, Tensor]:
        num_units = x_BUD.shape[1]
        refuse_more(num_units, self.max_units, "units", MAX_UNITS)
        mixed_BKD = self.mixtures_KU[:, :num_units] @ x_BUD.masked_fill(~valid_BU[..., None], 0)
        return mixed_BKD, torch.ones(mixed_BKD.shape[:2], dtype=torch.bool, device=x_BUD.device)

    def forward(self, heads: Heads) -> Tensor:
        return self.attend_to_all(heads, heads.queries_BHQE.new_zeros(1, 1))

    def num_keys(self, num_units: int) -> int:
        return len(self.mixtures_KU)

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        return num_heads * num_queries * num_keys

    def projection_multiply_accumulates(self, num_units: int, width: int) -> int:
        return len(self.mixtures_KU) * num_units * width
