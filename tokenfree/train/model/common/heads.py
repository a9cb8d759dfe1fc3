"""What an attention pattern is given: queries, keys and values of all heads, and what position codes add to them.

B batch, Q queries, K keys, H heads, R offsets, E width of a head, D width
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Heads(NamedTuple):
    """Queries, keys and values of all heads, and what a pattern may need beside them."""

    queries_BHQE: Tensor
    keys_BHKE: Tensor
    values_BHKE: Tensor
    valid_BK: Tensor  # bool: real units; others are not to be seen as keys
    source_BKD: Tensor  # what the keys were projected from, for patterns with projections of their own
    bias: PairBias | None = None  # bound to these heads: see `bound` in position_bias.py
    offset_values: OffsetValues | None = None  # of position codes that change values
    global_BK: Tensor | None = None  # bool: units that are to see all and be seen by all, in patterns that have such


class PairBias(Protocol):
    """Logit biases of pairs of a query and a key: what a position code says of the pairs that a pattern shows."""

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor, /) -> Tensor:
        """The bias of some pairs for some heads, [H, *pairs] or [B, H, *pairs].

        `queries` and `keys` are int64 indices of as many dimensions as `pairs`, to which they broadcast.
        """
        ...

    def dense(self, heads: slice, /) -> Tensor:
        """The bias of all pairs for some heads, [H, Q, K] or [B, H, Q, K]."""
        ...

    def plus_hidden(self, hidden_B11K: Tensor, valid_BK: Tensor, /) -> Tensor:
        """`dense` for all heads plus `hidden_B11K`, which follows from `valid_BK`: [B, H, Q, K].

        Without gradients only, and to be used before it is asked for again: the memory may be that of the last answer.
        """
        ...


class OffsetValues(NamedTuple):
    """Vectors [H, R, E] that values get for the offset of their key from the query, -(R // 2) to R // 2 and beyond."""

    table_HRE: Tensor

    def of_pairs(self, heads: slice, queries: Tensor, keys: Tensor) -> PairValues:
        """The vectors of some heads for pairs [Q, K] of a query and a key, given as int64 indices that broadcast."""
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
