"""Logit biases of position encodings, and how layers and heads share them (DIET, section 3.4).

B batch, U units, Q queries, K keys, H heads, R rank, O offsets, D width
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import LayerBias
from tokenfree.train.model.common.basic import refuse_more
from tokenfree.train.model.common.slots import Positions, PositionsConfig, Sharing, TrunkSettings

Item = TypeVar("Item")


def table_counts(sharing: Sharing, num_layers: int, num_heads: int) -> tuple[int, int]:
    """Return the numbers of layers and of heads with parameters of their own."""
    return 1 if sharing == "layer_wise" else num_layers, 1 if sharing == "head_wise" else num_heads


def for_layers(distinct: list[Item], num_layers: int) -> list[Item]:
    return distinct * num_layers if len(distinct) == 1 else distinct


def select_heads(table: Tensor, heads: slice, dim: int) -> Tensor:
    """Select some heads along dimension `dim` of `table`; all of it if one head stands for all."""
    return table if table.shape[dim] == 1 else table.movedim(dim, 0)[heads].movedim(0, dim)


def expand_heads(bias: Tensor, heads: slice, num_heads: int, dim: int) -> Tensor:
    """Expand dimension `dim` of `bias` to each of `heads` (of `num_heads`) if one head stands for all."""
    shape = [-1] * bias.dim()
    shape[dim] = len(range(num_heads)[heads])
    return bias.expand(shape)


def pairs_of_own(sharing: Sharing, pairs: list[int], num_heads: int) -> int:
    """Return the number of pairs whose bias is computed, given the visible `pairs` of each layer, summed over heads."""
    if sharing == "layer_wise":
        return max(pairs)
    return sum(pairs) // (num_heads if sharing == "head_wise" else 1)


MAX_UNITS = "model.trunk.positions.max_units"


@settings
class SharingConfig(PositionsConfig):
    """Settings of a position encoding whose parameters may be shared.

    Attributes:
        sharing: sharing of parameters. `none`: each layer and head has its own; `head_wise`: the heads of a layer
            share; `layer_wise`: the layers share.
    """

    sharing: Sharing = "none"


def needs_own_queries(trunk: TrunkSettings) -> Iterable[str]:
    """Yield a problem if the attention pattern gives some units other queries than those that the positions use."""
    if trunk.attention.separate_global_projections:
        yield (
            f"model.trunk.positions.name: {trunk.positions.name} as it is set scales or reads the layer's queries, "
            "which global units have not; set model.trunk.attention.separate_global_projections to false"
        )


class FactorBias(LayerBias):
    """Products queries_i . keys_j of factors [(B,) H, Q, R] and [(B,) H, K, R]; one head stands for all that share."""

    def __init__(self, queries_HQR: Tensor, keys_HKR: Tensor, num_heads: int, *, query_factor: float = 1.0) -> None:
        self.queries, self.keys, self.num_heads = queries_HQR, keys_HKR, num_heads
        self.query_factor = query_factor

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        q_HQR, k_HKR = (select_heads(factor, heads, -3) for factor in (self.queries, self.keys))
        if queries.shape[-1] == 1 and keys.dim() > 1 and keys.shape[-2] == 1:  # all pairs of each block
            bias = _rows(q_HQR, queries[..., 0]) @ _rows(k_HKR, keys[..., 0, :]).transpose(-2, -1)
        else:
            bias = (_rows(q_HQR, queries) * _rows(k_HKR, keys)).sum(dim=-1)
        return expand_heads(bias, heads, self.num_heads, bias.dim() - queries.dim() - 1)

    def dense(self, heads: slice) -> Tensor:
        q_HQR, k_HKR = (select_heads(factor, heads, -3) for factor in (self.queries, self.keys))
        return expand_heads(q_HQR @ k_HKR.transpose(-2, -1), heads, self.num_heads, -3)


class OffsetBias(LayerBias):
    """One scalar per head and offset: `by_offset_HO` holds those of key - query from -(U - 1) to U - 1."""

    def __init__(self, by_offset_HO: Tensor, num_heads: int, *, query_factor: float = 1.0) -> None:
        self.by_offset, self.num_heads, self.query_factor = by_offset_HO, num_heads, query_factor

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        by_offset_HO = select_heads(self.by_offset, heads, 0)
        index = keys - queries + self.by_offset.shape[1] // 2
        # The backward pass of an embedding adds all heads of a pair at once. Indexing would take far longer.
        bias = F.embedding(index, by_offset_HO.transpose(0, 1)).movedim(-1, 0)
        return expand_heads(bias, heads, self.num_heads, 0)

    def dense(self, heads: slice) -> Tensor:
        if torch.compiler.is_exporting():
            positions_U = torch.arange(self.by_offset.shape[1] // 2 + 1, device=self.by_offset.device)
            return self(heads, positions_U[:, None], positions_U)
        bias_HUU: Tensor = _Toeplitz.apply(select_heads(self.by_offset, heads, 0))  # pyright: ignore[reportAssignmentType]
        return expand_heads(bias_HUU, heads, self.num_heads, 0)


class FixedCode(Positions):
    """A position encoding that depends only on parameters (DIET, section 3.1)."""

    num_layers: int
    max_units: int

    def biases(self, num_units: int) -> Sequence[LayerBias]:
        raise NotImplementedError

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[LayerBias]:
        refuse_more(units_BUD.shape[1], self.max_units, "units", MAX_UNITS)
        return for_layers([*self.biases(units_BUD.shape[1])], self.num_layers)


class _Toeplitz(torch.autograd.Function):
    """Map [H, 2U - 1] to [H, U, U]: entry (i, j) is value j - i + U - 1. Diagonals are summed as columns."""

    @staticmethod
    def forward(ctx, by_offset_HO: Tensor) -> Tensor:
        return by_offset_HO.unfold(1, (by_offset_HO.shape[1] + 1) // 2, 1).flip(1)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> Tensor:
        num_units = gradients[0].shape[-1]
        wide = F.pad(gradients[0].flip(1), (0, num_units)).flatten(1)
        return wide[:, : num_units * (2 * num_units - 1)].unflatten(1, (num_units, -1)).sum(dim=1)


def _rows(factor: Tensor, index: Tensor) -> Tensor:
    return factor.index_select(-2, index.flatten()).unflatten(-2, index.shape)
