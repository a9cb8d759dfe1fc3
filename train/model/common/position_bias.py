"""What a position code hands to an attention pattern: logit biases of pairs of units, asked for where they are visible.

B batch, Q queries, K keys, H heads, R offsets, E width of a head
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from train.layers import Heads

PairBias = Callable[[slice, Tensor, Tensor], Tensor]
"""Logit bias of pairs of units, for some heads: (heads, queries, keys) to [H, *pairs] or [B, H, *pairs], where queries
and keys are index tensors of as many dimensions as `pairs`, to which they broadcast."""


class OffsetValues(NamedTuple):
    """Vectors [H, R, E] that values get for the offset of their key from the query, -(R // 2) to R // 2 and beyond."""

    table_HRE: Tensor

    def of_pairs(self, heads: slice, queries: Tensor, keys: Tensor) -> PairValues:
        """The vectors of some heads for pairs [Q, K] of a query and a key, given as indices that broadcast to them."""
        farthest = self.table_HRE.shape[1] // 2
        return PairValues(self.table_HRE[heads], (keys - queries).clamp(-farthest, farthest) + farthest)


class PairValues(NamedTuple):
    """Vectors [H, R, E], and which of them each pair adds to the value of its key, int64 [Q, K]."""

    table_HRE: Tensor
    index_QK: Tensor

    def average(self, weights: Tensor) -> Tensor:
        """What attention weights [..., H, Q, K] make of them, [..., H, Q, E]."""
        by_offset = weights.new_zeros(*weights.shape[:-1], self.table_HRE.shape[1])
        by_offset = by_offset.scatter_add(-1, self.index_QK.expand(weights.shape), weights)
        return by_offset @ self.table_HRE.to(weights.dtype)


class Workspace:
    """Memory that layers with biases of their own use in turn, where no gradient needs it to stay.

    At 512 units, to get new memory for each layer takes longer than to write to it.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """The memory of a name, for values of `shape` and the type of `like`; whoever had it before is done with it."""
        found = self._memory.get(name)
        if found is None or found.shape != shape or found.dtype != like.dtype:
            found = self._memory[name] = like.new_empty(shape)
        return found


class LayerBias:
    """The position code in one layer: a `PairBias` that can give all pairs at once, and may change the heads."""

    query_factor = 1.0  # of the content's logits
    workspace: Workspace | None = None  # of all layers, where they do not share

    def __init__(self) -> None:
        self._dense: Tensor | None = None
        self._visible: tuple[Tensor, Tensor] | None = None

    def afresh(self) -> LayerBias:
        """A copy that has computed nothing yet, nor has any that it is made of."""
        new = copy.copy(self)
        parts = {name: part.afresh() for name, part in vars(self).items() if isinstance(part, LayerBias)}
        vars(new).update(parts, _dense=None, _visible=None)
        return new

    def bind(self, heads: Heads) -> Heads:
        """The heads as this code wants them, with itself, bound to the queries where it reads them, as the bias."""
        if self.query_factor != 1:
            heads = heads._replace(queries_BHQE=heads.queries_BHQE * self.query_factor)
        return heads._replace(bias=self)

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        """See `PairBias`."""
        raise NotImplementedError

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        """The bias of all pairs of a query and a key, [H, Q, K] or [B, H, Q, K], in its own memory or `workspace`."""
        raise NotImplementedError

    def every_pair(self, heads: slice) -> Tensor:
        """`dense`, which for all heads is computed once, also where several layers share this object."""
        if heads != slice(None):
            return self.dense(heads)
        if self._dense is None:
            self._dense = self.dense(heads)
        return self._dense

    def of_visible(self, valid_BK: Tensor, hidden_B11K: Tensor) -> Tensor:
        """`dense` for all heads plus `hidden_B11K`, which follows from `valid_BK`: [B, H, Q, K].

        Without gradients only. Computed once where several layers share this object, and in one place in memory where
        that can be: at 512 units, the sums of all layers would take longer than the position code.
        """
        if self.workspace is not None and _works_in_place(hidden_B11K):
            return self._add(self.dense(slice(None), self.workspace), hidden_B11K, self.workspace)
        if self._visible is None or self._visible[0] is not valid_BK:
            dense = self.dense(slice(None)).to(hidden_B11K.dtype)
            self._visible = valid_BK, self._add(dense, hidden_B11K, None)
        return self._visible[1]

    def _add(self, dense: Tensor, hidden_B11K: Tensor, workspace: Workspace | None) -> Tensor:
        dense = dense[(None,) * (4 - dense.dim())]
        if len(dense) == len(hidden_B11K) and dense.is_contiguous():  # heads that share have the same memory
            return dense.add_(hidden_B11K)
        if workspace is None:
            return dense + hidden_B11K
        shape = (max(len(dense), len(hidden_B11K)), *dense.shape[1:])
        return torch.add(dense, hidden_B11K, out=workspace.take("sum", shape, dense))


def _works_in_place(hidden: Tensor) -> bool:
    """Whether memory is the program's own to manage, and all values are of one type."""
    return hidden.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()


def every_pair(bias: PairBias, heads: slice, queries_Q1: Tensor, keys_1K: Tensor) -> Tensor:
    """The bias of all pairs, where `queries_Q1` and `keys_1K` are all indices in order."""
    return bias.every_pair(heads) if isinstance(bias, LayerBias) else bias(heads, queries_Q1, keys_1K)
