"""What DOWN hands on: the units, and the grouping that tells UP which character went to which unit.

B batch, C characters, U units after DOWN, D width
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Grouping(NamedTuple):
    """The unit that stands for each character.

    `rate` is set where the grouping is CANINE's: unit 0 is CLS and unit 1 + i stands for characters rate * i to
    rate * i + rate - 1, the last unit also for all characters after its own. UP may then use cheaper arithmetic.
    """

    unit_BC: Tensor  # int64 [B or 1, C]
    rate: int | None = None


class Downsampled(NamedTuple):
    """What DOWN gives: units, and the characters as it left them, for UP."""

    units_BUD: Tensor
    valid_BU: Tensor  # bool: real units
    grouping: Grouping
    characters_BCD: Tensor


def unit_segments(segments_BC: Tensor, grouping: Grouping, num_units: int) -> Tensor:
    """The segment of each unit's first character, int64 [B, U]; that of CLS for unit 0 and units without characters."""
    unit_BC = grouping.unit_BC
    positions_BC = torch.arange(unit_BC.shape[1], device=unit_BC.device).expand_as(unit_BC)
    nowhere = unit_BC.shape[1]
    first_BU = positions_BC.new_full((unit_BC.shape[0], num_units), nowhere)
    first_BU = first_BU.scatter_reduce(1, unit_BC, positions_BC, "amin")
    first_BU = torch.where(first_BU == nowhere, 0, first_BU)
    return segments_BC.gather(1, first_BU.expand(segments_BC.shape[0], -1))


def any_of_units(marked_BC: Tensor, grouping: Grouping, num_units: int) -> Tensor:
    """Whether a unit stands for any marked character, bool [B, U]; marked are those above 0 of `marked_BC`."""
    counts_BU = torch.zeros(marked_BC.shape[0], num_units, dtype=torch.int64, device=marked_BC.device)
    unit_BC = grouping.unit_BC.expand(marked_BC.shape)
    return counts_BU.scatter_add(1, unit_BC, (marked_BC > 0).to(torch.int64)) > 0
