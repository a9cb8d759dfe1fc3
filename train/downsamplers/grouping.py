"""What DOWN hands on: the units, and the grouping that tells UP which character went to which unit."""

from typing import NamedTuple

from torch import Tensor


class Grouping(NamedTuple):
    """The unit that stands for each character.

    `rate` is set where the grouping is CANINE's: unit 0 is CLS and unit 1 + i stands for characters rate * i to
    rate * i + rate - 1, the last unit also for all characters after its own. UP may then use cheaper arithmetic.
    """

    unit_BC: Tensor  # int64 [B or 1, C]
    rate: int | None = None


class Downsampled(NamedTuple):
    """Units [B, U, D] with their validity [B, U], and the characters as DOWN left them [B, C, D], for UP."""

    units_BUD: Tensor
    valid_BU: Tensor
    grouping: Grouping
    characters_BCD: Tensor
