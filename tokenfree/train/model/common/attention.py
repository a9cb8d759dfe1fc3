"""Attention between the projections: heads, and the base classes of position biases and of all patterns.

B batch, U units, Q queries, K keys, H heads, R offsets, E width of a head, D width
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenfree.train.model.common.kernels import average, draws_here, dropout


class Heads(NamedTuple):
    """Queries, keys and values of all heads, and the other inputs of attention patterns."""

    queries_BHQE: Tensor
    keys_BHKE: Tensor
    values_BHKE: Tensor
    valid_BK: Tensor  # bool: real units; others are hidden as keys
    source_BKD: Tensor  # input of the key projection, for patterns with projections of their own
    bias: "LayerBias | None" = None  # bound to these heads, see `LayerBias.bind`
    # From position encodings that change values, [H, R, E]: vectors by the offset key - query, see
    # `PairValues.of`.
    offset_values: Tensor | None = None
    # Bool: units that attend to all and are attended to by all, if the pattern has any.
    global_BK: Tensor | None = None


def clipped_offsets(queries: Tensor, keys: Tensor, num_offsets: int) -> Tensor:
    """Return the index of the offset key - query among `num_offsets` (R), clipped to -(R // 2) to R // 2."""
    farthest = num_offsets // 2
    return (keys - queries).clamp(-farthest, farthest) + farthest


class PairValues(NamedTuple):
    """Vectors [H, R, E], and the index of the one that each pair adds to the value of its key, int64 [Q, K]."""

    table_HRE: Tensor
    index_QK: Tensor

    @classmethod
    def of(cls, offset_values: Tensor, queries: Tensor, keys: Tensor) -> "PairValues":
        return cls(offset_values, clipped_offsets(queries, keys, offset_values.shape[1]))

    def average(self, weights: Tensor) -> Tensor:
        by_offset = weights.new_zeros(*weights.shape[:-1], self.table_HRE.shape[1])
        by_offset = by_offset.scatter_add(-1, self.index_QK.expand(weights.shape), weights)
        return by_offset @ self.table_HRE.to(weights.dtype)


ALL_HEADS = slice(None)


class LayerBias:
    """Logit biases of pairs of a query and a key: the position encoding in one layer.

    `bind` it to heads before use.
    """

    query_factor: float = 1.0  # factor of the content's logits

    def bind(self, heads: Heads) -> Heads:
        """Return the heads with this bias, bound to their queries if it depends on them, and with scaled queries."""
        if self.query_factor != 1:
            heads = heads._replace(queries_BHQE=heads.queries_BHQE * self.query_factor)
        return heads._replace(bias=self)

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the bias [(B,) H, *pairs] of some heads for pairs given by int64 indices that broadcast to `pairs`."""
        raise NotImplementedError

    def dense(self, heads: slice) -> Tensor:
        """Return the bias of all pairs for some heads, [H, Q, K] or [B, H, Q, K]."""
        raise NotImplementedError

    def uncached(self) -> "LayerBias":
        """Return the same bias without cached values, for a recomputed forward pass."""
        return self


# Up to this number of keys, bfloat16 attention trains faster on the CPU without the fused kernel.
FEW_KEYS = 256


class Core(nn.Module, ABC):
    """Attention softmax(Q K^T / sqrt(E)) V over the pairs of a pattern (Vaswani et al., arXiv 1706.03762)."""

    # Number of first heads with windows of one unit, whose queries and keys the layer may leave out.
    num_alone = 0

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    @abstractmethod
    def forward(self, heads: Heads) -> Tensor:
        """Return the context of every query, [B, H, Q, E]."""

    @abstractmethod
    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        """Return the number of visible pairs of a query and a key in one full example, summed over heads."""

    def source(self, x_BUD: Tensor, valid_BU: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the key and value projections, [B, K, D], and its mask, bool [B, K]: here the units."""
        return x_BUD, valid_BU

    def num_keys(self, num_units: int) -> int:
        return num_units

    def projection_multiply_accumulates(self, num_units: int, width: int) -> int:
        """Return the multiply-accumulates of the pattern's own projections, by default none."""
        return 0

    def copy_projections(self, layer: nn.Module) -> list[str]:
        """Copy the surrounding layer's projections to the pattern's own, and return the names of the parameters set."""
        return []

    def attend_to_all(self, heads: Heads, hidden: Tensor) -> Tensor:
        """Return the context [B, H, Q, E] over all pairs of units except those of `hidden` (see `hide`)."""
        bias = None if heads.bias is None else heads.bias.dense(ALL_HEADS)
        of_pairs = None
        if heads.offset_values is not None:
            queries_Q1 = torch.arange(heads.queries_BHQE.shape[2], device=hidden.device)[:, None]
            keys_1K = torch.arange(heads.keys_BHKE.shape[2], device=hidden.device)[None, :]
            of_pairs = PairValues.of(heads.offset_values, queries_Q1, keys_1K)
        return self.attend(heads.queries_BHQE, heads.keys_BHKE, heads.values_BHKE, hidden, bias, of_pairs)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        hidden: Tensor,
        bias: Tensor | None = None,
        of_pairs: PairValues | None = None,
    ) -> Tensor:
        """Return softmax(q k^T / sqrt(E) + hidden + bias) v with dropout on the probabilities, [..., H, Q, E].

        `hidden` (see `hide`) and `bias` broadcast to [..., H, Q, K]. Their sum would be as large as the
        logits. `of_pairs` adds a vector to the value of each pair.
        """
        rate = self.dropout if self.training else 0.0
        hidden = hidden.to(queries.dtype)
        # On the CPU, the backward pass of PyTorch's fused attention is then slower, by up to five times.
        is_slow = queries.dtype == torch.bfloat16 and torch.is_grad_enabled() and keys.shape[-2] <= FEW_KEYS
        in_parts = draws_here(queries) and (rate > 0 or is_slow)
        if of_pairs is None and not in_parts:
            added = hidden if bias is None else hidden + bias.to(queries.dtype)
            return F.scaled_dot_product_attention(queries, keys, values, added, rate)
        logits = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)
        logits.add_(hidden)
        if bias is not None:
            # With all dimensions and a single example, the bias gets the gradient of the logits without a
            # sum.
            logits.add_(bias[(None,) * (logits.dim() - bias.dim())])
        weights = logits.softmax(dim=-1)
        if of_pairs is None:
            return average(weights, values, rate) if rate > 0 else weights @ values
        weights = dropout(weights, rate, training=True)
        return weights @ values + of_pairs.average(weights)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a logit bias of 0 where `visible`, bool, else so low that the weight is exactly 0 next to a visible key.

    A query without visible keys gets equal weights, never NaN. The lowest value of the dtype would overflow
    in fused kernels, which multiply logits by log2(e).
    """
    lowest = max(-1e30, torch.finfo(dtype).min / 2)
    return torch.where(visible, 0.0, lowest).to(dtype)
