"""DIET-ABS: each head adds a learned matrix of low rank to its logits (Chen et al. 2021, equation 5).

U units, K keys, H heads, R rank, L layers
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.layers import Dimensions
from train.trunk.positions.biases import FactorBias
from train.trunk.positions.sharing import (
    Sharing,
    for_layers,
    needs_own_queries,
    pairs_of_own,
    refuse_more_units,
    table_counts,
    too_many,
)

if TYPE_CHECKING:
    from train.trunk import TrunkConfig

INITIAL_STD = 0.02


@settings
class Config:
    name: Literal["diet_abs"] = "diet_abs"
    rank: Annotated[int, Field(ge=1)] | None = None  # width / heads
    sharing: Sharing = "layer_wise"
    max_units: Annotated[int, Field(ge=1)] = 512
    scale: Literal["head_width", "width"] = "head_width"  # whose root divides the logits of the content

    def build(self, dimensions: Dimensions, trunk: "TrunkConfig") -> "DietAbs":
        return DietAbs(self, dimensions, trunk)

    def check(self, trunk: "TrunkConfig", num_units: int | None) -> Iterable[str]:
        yield from too_many(self.max_units, num_units)
        if self.scale == "width":
            yield from needs_own_queries(trunk)


class DietAbs(nn.Module):
    """The bias of unit i and key j is row i of P_Q times row j of P_K, without any scale.

    With Linformer (DIET-ABS-LIN) there are as many keys as rows of its projection, and P_K has a row for each.
    """

    def __init__(self, config: Config, dimensions: Dimensions, trunk: "TrunkConfig") -> None:
        super().__init__()
        self.sharing: Sharing = config.sharing
        self.num_layers, self.num_heads, self.max_units = trunk.layers, dimensions.heads, config.max_units
        self.has_units_as_keys = trunk.attention.name != "linformer"
        num_keys = config.max_units if self.has_units_as_keys else trunk.attention.projection
        rank = config.rank or dimensions.head_width
        counts = table_counts(config.sharing, trunk.layers, dimensions.heads)
        self.queries_LHUR = nn.Parameter(INITIAL_STD * torch.randn(*counts, config.max_units, rank))
        self.keys_LHKR = nn.Parameter(INITIAL_STD * torch.randn(*counts, num_keys, rank))
        self.query_factor = dimensions.heads**-0.5 if config.scale == "width" else 1.0

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[FactorBias]:
        num_units = units_BUD.shape[1]
        refuse_more_units(num_units, self.max_units)
        num_keys = num_units if self.has_units_as_keys else self.keys_LHKR.shape[2]
        # unbind: its backward pass writes the gradient of all layers once; indexing would add zeros for the others.
        queries, keys = self.queries_LHUR[:, :, :num_units].unbind(0), self.keys_LHKR[:, :, :num_keys].unbind(0)
        biases = [FactorBias(q, k, self.num_heads) for q, k in zip(queries, keys, strict=True)]
        for bias in biases:
            bias.query_factor = self.query_factor
        return for_layers(biases, self.num_layers)

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        """Of one forward; `pairs` are the visible ones of each layer, summed over heads."""
        return pairs_of_own(self.sharing, pairs, self.num_heads) * self.queries_LHUR.shape[3]
