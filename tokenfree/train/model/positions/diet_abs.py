"""DIET-ABS: each head adds a learned low-rank matrix to its logits.

R rank
"""

from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import FactorBias
from tokenfree.train.model.common.basic import STD, Dimensions, refuse_more
from tokenfree.train.model.common.slots import MAX_UNITS, Positions, Sharing, TrunkConfig, table_counts
from tokenfree.train.model.positions.diet_rel import DietConfig


@settings
class Config(DietConfig):
    """DIET-ABS (Chen et al., arXiv 2104.08698, equation 5): each head adds a learned low-rank matrix to its logits.

    The combination with Linformer's attention is DIET-ABS-LIN.

    Attributes:
        rank: rank of the matrix; null: width / heads.
    """

    name: Literal["diet_abs"] = "diet_abs"
    rank: Positive | None = None
    sharing: Sharing = "layer_wise"

    takes_mixtures = True

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "DietAbs":
        return DietAbs(self, dimensions, trunk)


class DietAbs(Positions):
    """Bias of unit i and key j: row i of P_Q times row j of P_K, unscaled. Keys may be mixtures."""

    def __init__(self, config: Config, dimensions: Dimensions, trunk: TrunkConfig) -> None:
        super().__init__()
        self.sharing: Sharing = config.sharing
        self.num_heads, self.max_units = dimensions.heads, config.max_units
        num_mixtures = trunk.attention.num_mixtures
        self.has_units_as_keys = num_mixtures is None
        num_keys = config.max_units if num_mixtures is None else num_mixtures
        rank = config.rank or dimensions.head_width
        counts = table_counts(config.sharing, trunk.layers, dimensions.heads)
        self.queries_LHUR = nn.Parameter(STD * torch.randn(*counts, config.max_units, rank))
        self.keys_LHKR = nn.Parameter(STD * torch.randn(*counts, num_keys, rank))
        self.stacked = {"queries_LHUR": counts[0], "keys_LHKR": counts[0]}  # see train/optimizers/base.py
        self.query_factor = config.query_factor(dimensions)

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[FactorBias]:
        num_units = units_BUD.shape[1]
        refuse_more(num_units, self.max_units, "units", MAX_UNITS)
        num_keys = num_units if self.has_units_as_keys else self.keys_LHKR.shape[2]
        # The backward pass of unbind writes the gradients of all layers once. Indexing would add zeros for
        # the others.
        queries, keys = (
            self.queries_LHUR[:, :, :num_units].unbind(0),
            self.keys_LHKR[:, :, :num_keys].unbind(0),
        )
        return [
            FactorBias(q, k, self.num_heads, query_factor=self.query_factor)
            for q, k in zip(queries, keys, strict=True)
        ]

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        num_pairs = sum(pairs) // (self.num_heads if self.sharing == "head_wise" else 1)
        return (max(pairs) if self.sharing == "layer_wise" else num_pairs) * self.queries_LHUR.shape[3]
