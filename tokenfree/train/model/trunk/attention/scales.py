"""Scales of multi-scale attention: how many heads of a layer get which, and how wide a window is (Guo et al. 2020)."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field
from torch import Tensor

Number = TypeVar("Number", int, Tensor)

Scale = Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=r"^N/[1-9][0-9]*$")]
"""A number of units, or a fraction of the real length N of each example, as in `N/16`."""

WindowConvention = Literal["width", "half"]
Slope = Literal["harmonic", "linear"]


def allocate_heads(alpha: float, num_layers: int, num_heads: int, num_scales: int, slope: Slope) -> list[list[int]]:
    """For each layer, lowest first, the number of heads of each scale, smallest scale first.

    Layer l has the slope alpha / l (or alpha (L - l) / (L - 1) where `linear`), the top layer 0. Shares are
    softmax(slope * (S - k)), rounded by the cumulative ceiling: head h gets the first scale whose cumulative share of
    the heads exceeds h. The rule as printed cannot give the paper's own example; this one does.
    """
    allocation = []
    for layer in range(1, num_layers + 1):
        decay = 1 / layer if slope == "harmonic" else (num_layers - layer) / max(num_layers - 1, 1)
        steepness = 0.0 if layer == num_layers else alpha * decay
        allocation.append(_round(_shares(steepness, num_scales), num_heads))
    return allocation


def resolve_width(scale: int | str, length: int) -> int:
    """The odd width of `scale` in an example of `length` real units; N/k is floored, then made odd; at most 2N - 1."""
    width = scale if isinstance(scale, int) else odd(length // divisor(scale))
    return min(width, 2 * length - 1)


def divisor(scale: str) -> int:
    """The k of `N/k`."""
    return int(scale.removeprefix("N/"))


def odd(width: Number) -> Number:
    """`width`, plus one where it is even."""
    return width // 2 * 2 + 1


def reach(width: Number, convention: WindowConvention) -> Number:
    """How many units to each side a window shows: a width of w counts all units in it, or (as "half") those beside."""
    return width // 2 if convention == "width" else width


def _shares(steepness: float, num_scales: int) -> list[float]:
    logits = [steepness * (num_scales - k) for k in range(1, num_scales + 1)]
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def _round(shares: Sequence[float], num_heads: int) -> list[int]:
    counts, cumulative, given = [], 0.0, 0
    for k, share in enumerate(shares):
        cumulative += share * num_heads
        # 1e-9: sums that are whole in exact arithmetic must not be rounded up for their last bits.
        upto = num_heads if k == len(shares) - 1 else min(num_heads, max(0, math.ceil(cumulative - 1e-9)))
        counts.append(upto - given)
        given = upto
    return counts
