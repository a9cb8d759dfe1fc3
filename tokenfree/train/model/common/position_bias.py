"""Position codes as the layers meet them: what a code does to the heads of one layer, and the sum of two codes.

B batch, Q queries, K keys, H heads, E width of a head
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokenfree.train.model.common.heads import Heads
from tokenfree.train.model.common.workspace import Workspace

ALL_HEADS = slice(None)


class LayerBias:
    """The position code in one layer: a `PairBias`, once it is bound to the heads.

    It holds tensors and nothing that it computed: what is computed once for several layers, and in whose memory, is the
    business of the stack (trunk/bias_reuse.py).
    """

    query_factor: float = 1.0  # of the content's logits

    def bind(self, heads: Heads) -> Heads:
        """The heads as this code wants them, with itself, bound to the queries where it reads them, as the bias."""
        if self.query_factor != 1:
            heads = heads._replace(queries_BHQE=heads.queries_BHQE * self.query_factor)
        return heads._replace(bias=self)

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        """The bias of some pairs for some heads, [H, *pairs] or [B, H, *pairs]; see `PairBias`."""
        raise NotImplementedError

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        """The bias of all pairs for some heads, [H, Q, K] or [B, H, Q, K].

        It lies in memory of its own, or in that of `workspace` where this bias can be written there.
        """
        raise NotImplementedError

    def plus_hidden(self, hidden_B11K: Tensor, valid_BK: Tensor, workspace: Workspace | None = None) -> Tensor:
        """`dense` for all heads plus `hidden_B11K`, [B, H, Q, K], in the memory of `workspace`; see `PairBias`."""
        return add_hidden(self.dense(ALL_HEADS, workspace).to(hidden_B11K.dtype), hidden_B11K, workspace)

    def afresh(self) -> LayerBias:
        """The same bias without what the stack keeps in it, for a forward pass that is done a second time."""
        return self


class SumBias(LayerBias):
    """The sum of two, as of a position code and the segments."""

    def __init__(self, one: LayerBias, other: LayerBias) -> None:
        self.one, self.other = one, other

    def bind(self, heads: Heads) -> Heads:
        """The heads as the one wants them, then as the other does."""
        heads = self.one.bind(heads)
        one, heads = heads.bias, self.other.bind(heads)
        assert isinstance(one, LayerBias)
        assert isinstance(heads.bias, LayerBias)
        unchanged = one is self.one and heads.bias is self.other
        return heads._replace(bias=self if unchanged else SumBias(one, heads.bias))

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        """See `LayerBias`."""
        return self.one(heads, queries, keys) + self.other(heads, queries, keys)

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        """See `LayerBias`; always in memory of its own."""
        return self.one.dense(heads) + self.other.dense(heads)

    def afresh(self) -> LayerBias:
        """See `LayerBias`."""
        return SumBias(self.one.afresh(), self.other.afresh())


def bound(heads: Heads, bias: LayerBias | None) -> Heads:
    """`heads` as the position code and the segments of their layer want them, if it has any."""
    return heads if bias is None else bias.bind(heads)


def add_hidden(
    dense: Tensor, hidden_B11K: Tensor, workspace: Workspace | None = None, *, in_place: bool = True
) -> Tensor:
    """The sum [B, H, Q, K] of a bias [(B,) H, Q, K] and of `hidden_B11K`, in the memory of `dense` where that can be.

    Else, and never `in_place` where that is False, in that of `workspace`, or in new memory where there is none.
    """
    dense = dense[(None,) * (4 - dense.dim())]
    if in_place and len(dense) == len(hidden_B11K) and dense.is_contiguous():  # heads that share have the same memory
        return dense.add_(hidden_B11K)
    if workspace is None:
        return dense + hidden_B11K
    shape = (max(len(dense), len(hidden_B11K)), *dense.shape[1:])
    return torch.add(dense, hidden_B11K, out=workspace.take("sum", shape, dense))
