"""Position biases that are combined, shared, or computed from factors or offsets.

B batch, U units, Q queries, K keys, H heads, R rank, O offsets
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokenfree.train.model.common.attention import ALL_HEADS, Heads, LayerBias
from tokenfree.train.model.common.basic import is_exporting


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
        bias = F.embedding(index, by_offset_HO.transpose(0, 1)).movedim(-1, 0)
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
        wide = F.pad(gradients[0].flip(1), (0, num_units)).flatten(1)
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
