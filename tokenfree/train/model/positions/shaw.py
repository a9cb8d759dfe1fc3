"""Shaw's relative positions: keys, and optionally values, get a learned vector per offset.

O offsets within the clip distance
"""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import Heads, LayerBias, clipped_offsets, expand_heads
from tokenfree.train.model.common.basic import STD, Dimensions, is_exporting
from tokenfree.train.model.common.slots import (
    Positions,
    Sharing,
    SharingConfig,
    TrunkConfig,
    needs_own_queries,
    table_counts,
)


@settings
class Config(SharingConfig):
    """Relative position representations (Shaw et al., arXiv 1803.02155, section 3, equations 3 and 4).

    Attributes:
        clip: maximum offset in units with its own vector; larger offsets use the vector of this one.
        values: add offset vectors to the values as well as to the keys.
    """

    name: Literal["shaw"] = "shaw"
    clip: Positive = 128
    values: bool = False
    sharing: Sharing = "head_wise"

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "Shaw":
        return Shaw(self, dimensions, trunk.layers)

    def check(self, trunk: TrunkConfig, num_units: int | None) -> Iterable[str]:
        yield from needs_own_queries(trunk)
        if trunk.layer.head_width is not None:
            yield "model.trunk.positions.name: shaw needs heads of width / heads; leave out trunk.layer.head_width"
        if self.values and not trunk.attention.adds_to_values:
            yield (
                "model.trunk.positions.values: defined with the attention full and multi_scale only, not with "
                f"{trunk.attention.name}; set it to false"
            )


class Shaw(Positions):
    """q_i (k_j + a_{j-i}) / sqrt(E), and values v_j + b_{j-i}, with j - i clipped."""

    def __init__(self, config: Config, dimensions: Dimensions, num_layers: int) -> None:
        super().__init__()
        self.num_heads, self.clip = dimensions.heads, config.clip
        counts = table_counts(config.sharing, num_layers, dimensions.heads)
        shape = (*counts, 2 * config.clip + 1, dimensions.head_width)
        self.keys_LHOE = nn.Parameter(STD * torch.randn(shape))
        self.values_LHOE = nn.Parameter(STD * torch.randn(shape)) if config.values else None
        self.stacked = {"keys_LHOE": counts[0], "values_LHOE": counts[0]}  # see train/optimizers/base.py

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list["ShawBias"]:
        farthest = self.clip if is_exporting() else min(self.clip, units_BUD.shape[1] - 1)
        reachable = slice(self.clip - farthest, self.clip + farthest + 1)
        keys = self.keys_LHOE[:, :, reachable].unbind(0)
        values = (
            [None] * len(keys) if self.values_LHOE is None else self.values_LHOE[:, :, reachable].unbind(0)
        )
        return [ShawBias(k, v, self.num_heads) for k, v in zip(keys, values, strict=True)]

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        return sum(pairs) * self.keys_LHOE.shape[3] * (1 if self.values_LHOE is None else 2)


class ShawBias(LayerBias):
    """Vectors of one layer. The bias also depends on the queries, so it is computed by `bind`."""

    def __init__(self, keys_HOE: Tensor, values_HOE: Tensor | None, num_heads: int) -> None:
        self.keys_HOE, self.values_HOE, self.num_heads = keys_HOE, values_HOE, num_heads

    def bind(self, heads: Heads) -> Heads:
        q_BHUE = heads.queries_BHQE
        by_offset_BHUO = (q_BHUE * q_BHUE.shape[-1] ** -0.5) @ self.keys_HOE.transpose(-2, -1)
        heads = heads._replace(bias=QueryBias(by_offset_BHUO))
        if self.values_HOE is None:
            return heads
        return heads._replace(offset_values=expand_heads(self.values_HOE, slice(None), self.num_heads, 0))


class QueryBias(LayerBias):
    """Scalars of each query for the clipped offsets of its keys."""

    def __init__(self, by_offset_BHUO: Tensor) -> None:
        self.by_offset = by_offset_BHUO

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        index = clipped_offsets(queries, keys, self.by_offset.shape[3])
        return self.by_offset[:, heads][:, :, queries, index]

    def dense(self, heads: slice) -> Tensor:
        by_offset_BHUO = self.by_offset[:, heads]
        positions_U = torch.arange(by_offset_BHUO.shape[2], device=by_offset_BHUO.device)
        index_UU = clipped_offsets(positions_U[:, None], positions_U, self.by_offset.shape[3])
        return by_offset_BHUO.gather(3, index_UU.expand(*by_offset_BHUO.shape[:2], -1, -1))
