"""Attention between the projections: heads, the base class of all patterns, and position biases.

B batch, U units, Q queries, K keys, H heads, E width of a head, D width, R offsets of values or rank of factors,
O offsets of biases
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tokenfree.train.model.common.basic import average, draws_here, dropout, is_exporting


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
        if of_pairs is None and not is_faster_in_parts(queries, keys, rate):
            added = hidden if bias is None else hidden + bias.to(queries.dtype)
            return nn.functional.scaled_dot_product_attention(queries, keys, values, added, rate)
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


def is_faster_in_parts(queries: Tensor, keys: Tensor, rate: float) -> bool:
    """Return True on a CPU if the backward pass of PyTorch's fused attention is slower, by up to five times."""
    few = queries.dtype == torch.bfloat16 and torch.is_grad_enabled() and keys.shape[-2] <= FEW_KEYS
    return draws_here(queries) and (rate > 0 or few)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a logit bias of 0 where `visible`, bool, else so low that the weight is exactly 0 next to a visible key.

    A query without visible keys gets equal weights, never NaN. The lowest value of the dtype would overflow
    in fused kernels, which multiply logits by log2(e).
    """
    return torch.where(visible, 0.0, max(-1e30, torch.finfo(dtype).min / 2)).to(dtype)


class SumBias(LayerBias):
    def __init__(self, one: LayerBias, other: LayerBias) -> None:
        self.one, self.other = one, other

    def bind(self, heads: Heads) -> Heads:
        heads = self.one.bind(heads)
        one, heads = heads.bias, self.other.bind(heads)
        assert one is not None
        assert heads.bias is not None
        unchanged = one is self.one and heads.bias is self.other
        return heads._replace(bias=self if unchanged else SumBias(one, heads.bias))

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        return self.one(heads, queries, keys) + self.other(heads, queries, keys)

    def dense(self, heads: slice) -> Tensor:
        return self.one.dense(heads) + self.other.dense(heads)

    def uncached(self) -> LayerBias:
        return SumBias(self.one.uncached(), self.other.uncached())


class SomeHeadsBias(LayerBias):
    def __init__(self, bias: LayerBias, group: slice) -> None:
        self.bias, self.group = bias, group

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        assert heads == ALL_HEADS
        return self.bias(self.group, queries, keys)

    def dense(self, heads: slice) -> Tensor:
        assert heads == ALL_HEADS
        return self.bias.dense(self.group)


class SharedBias(LayerBias):
    """A bias that all layers share. Its dense value for all heads is computed once per forward pass."""

    def __init__(self, bias: LayerBias) -> None:
        self.bias = bias
        self._dense: Tensor | None = None

    def bind(self, heads: Heads) -> Heads:
        heads = self.bias.bind(heads)
        return heads._replace(bias=self) if heads.bias is self.bias else heads

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        return self.bias(heads, queries, keys)

    def dense(self, heads: slice) -> Tensor:
        if heads != ALL_HEADS:
            return self.bias.dense(heads)
        if self._dense is None:
            self._dense = self.bias.dense(heads)
        return self._dense

    def uncached(self) -> LayerBias:
        return SharedBias(self.bias.uncached())


def select_heads(table: Tensor, heads: slice, dim: int) -> Tensor:
    """Select some heads along dimension `dim` of `table`; all of it if one head stands for all."""
    return table if table.shape[dim] == 1 else table.movedim(dim, 0)[heads].movedim(0, dim)


def expand_heads(bias: Tensor, heads: slice, num_heads: int, dim: int) -> Tensor:
    """Expand dimension `dim` of `bias` to each of `heads` (of `num_heads`) if one head stands for all."""
    shape = [-1] * bias.dim()
    shape[dim] = len(range(num_heads)[heads])
    return bias.expand(shape)


class FactorBias(LayerBias):
    """Products queries_i . keys_j of factors [(B,) H, Q, R] and [(B,) H, K, R]; one head stands for all that share."""

    def __init__(
        self, queries_HQR: Tensor, keys_HKR: Tensor, num_heads: int, *, query_factor: float = 1.0
    ) -> None:
        self.queries, self.keys, self.num_heads = queries_HQR, keys_HKR, num_heads
        self.query_factor = query_factor

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        q_HQR, k_HKR = (select_heads(factor, heads, -3) for factor in (self.queries, self.keys))
        # All pairs of each block.
        if queries.shape[-1] == 1 and keys.shape[-2] == 1:
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
        bias = nn.functional.embedding(index, by_offset_HO.transpose(0, 1)).movedim(-1, 0)
        return expand_heads(bias, heads, self.num_heads, 0)

    def dense(self, heads: slice) -> Tensor:
        if is_exporting():
            positions_U = torch.arange(self.by_offset.shape[1] // 2 + 1, device=self.by_offset.device)
            return self(heads, positions_U[:, None], positions_U)
        bias_HUU: Tensor = _Toeplitz.apply(select_heads(self.by_offset, heads, 0))  # pyright: ignore[reportAssignmentType]
        return expand_heads(bias_HUU, heads, self.num_heads, 0)


class _Toeplitz(torch.autograd.Function):
    """Map [H, 2U - 1] to [H, U, U]: entry (i, j) is value j - i + U - 1. Diagonals are summed as columns."""

    @staticmethod
    def forward(ctx, by_offset_HO: Tensor) -> Tensor:
        return by_offset_HO.unfold(1, (by_offset_HO.shape[1] + 1) // 2, 1).flip(1)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> Tensor:
        num_units = gradients[0].shape[-1]
        wide = nn.functional.pad(gradients[0].flip(1), (0, num_units)).flatten(1)
        return wide[:, : num_units * (2 * num_units - 1)].unflatten(1, (num_units, -1)).sum(dim=1)


def _rows(factor: Tensor, index: Tensor) -> Tensor:
    return factor.index_select(-2, index.flatten()).unflatten(-2, index.shape)


def shared(biases: Sequence[LayerBias]) -> Sequence[LayerBias]:
    """Return the biases of all layers for one forward pass.

    Layers with the same object compute its values once.
    """
    return [SharedBias(biases[0])] * len(biases) if biases[0] is biases[-1] else biases


def sums(some: Sequence[LayerBias], others: Sequence[LayerBias]) -> list[LayerBias]:
    """Return the sum of two biases in each layer: the same object if both are the same for all layers."""
    if some[0] is some[-1] and others[0] is others[-1]:
        return [SumBias(some[0], others[0])] * len(some)
    return [SumBias(*both) for both in zip(some, others, strict=True)]
