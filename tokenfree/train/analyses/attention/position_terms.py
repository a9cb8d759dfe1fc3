"""What a position code adds to the logits whatever the text is: how much of it is a function of i - j alone.

U units, H heads, S segments
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokenfree.train.model.common.position_bias import ALL_HEADS, LayerBias
from tokenfree.train.model.encoder import Encoder


class PositionShape(NamedTuple):
    """What a position term of one head is like; nan where it is constant."""

    toeplitz: float  # share of its variance that a function of i - j explains
    toeplitz_without_cls: float  # the same without the row and the column of unit 0
    shift: float  # mean of |B[i + 1, j + 1] - B[i, j]| over the standard deviation of B


def toeplitz_share(bias_UU: Tensor) -> float:
    """The share of the variance of a square matrix that the means of its diagonals explain; nan of a constant one."""
    bias_UU = bias_UU.double()
    num_units = len(bias_UU)
    places_U = torch.arange(num_units, device=bias_UU.device)
    offset_UU = (places_U - places_U[:, None] + num_units - 1).flatten()
    sums = torch.zeros(2 * num_units - 1, dtype=bias_UU.dtype).index_add(0, offset_UU, bias_UU.flatten())
    means = sums / torch.bincount(offset_UU)
    left = (bias_UU.flatten() - means[offset_UU]).square().sum()
    whole = (bias_UU - bias_UU.mean()).square().sum()
    return float("nan") if _is_constant(bias_UU) else float(1 - left / whole)


def shape_of(bias_UU: Tensor) -> PositionShape:
    """The measures of one position term, a square matrix of at least two units."""
    bias_UU = bias_UU.double()
    steps = (bias_UU[1:, 1:] - bias_UU[:-1, :-1]).abs().mean()
    shift = float("nan") if _is_constant(bias_UU) else float(steps / bias_UU.std(correction=0))
    return PositionShape(toeplitz_share(bias_UU), toeplitz_share(bias_UU[1:, 1:]), shift)


def position_terms(encoder: Encoder, num_units: int) -> list[Tensor | None]:
    """What the position code adds in each layer for any text of `num_units` units, [H, U, U].

    None where there is no code, where its term hangs on the queries (Shaw's), and where keys are not units.
    """
    example_BUD = torch.zeros(1, num_units, encoder.width)
    valid_BU = torch.ones(1, num_units, dtype=torch.bool)
    with torch.no_grad():
        biases = encoder.trunk.positions(example_BUD, valid_BU)
        found = [None if biases is None else _dense(biases[layer]) for layer in range(len(encoder.trunk.layers))]
    return [None if term is None or term.shape[-1] != num_units else term for term in found]


def segment_tables(encoder: Encoder) -> list[Tensor | None]:
    """What segments add in each layer for a query of segment a and a key of segment b, [H, S, S]; None without."""
    num_layers = len(encoder.trunk.layers)
    num_segments: Any = getattr(encoder.config.trunk.segments, "num_segments", None)
    if num_segments is None:
        return [None] * num_layers
    with torch.no_grad():
        biases = encoder.trunk.segments(torch.arange(num_segments)[None])
        return [None if biases is None else biases[layer].dense(ALL_HEADS)[0] for layer in range(num_layers)]


def own_segment(table_SS: Tensor) -> float:
    """How much more the logit of a key gets in the query's own segment than in others, the mean over segments.

    What all keys of a query get is left out, as the softmax takes no notice of it.
    """
    table_SS = table_SS.double()
    num_segments = len(table_SS)
    others_S = (table_SS.sum(dim=1) - table_SS.diagonal()) / (num_segments - 1)
    return float((table_SS.diagonal() - others_S).mean())


def _is_constant(bias_UU: Tensor) -> bool:
    return bool(bias_UU.max() - bias_UU.min() <= 1e-12 * bias_UU.abs().max())


def _dense(bias: LayerBias) -> Tensor | None:
    try:
        found = bias.dense(ALL_HEADS)
    except NotImplementedError:  # a bias that comes with the queries has none of its own
        return None
    return found if found.dim() == 3 else None
