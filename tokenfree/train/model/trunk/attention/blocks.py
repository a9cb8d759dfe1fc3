"""Blocks of neighbouring units with the band of keys that they see, so that attention in a band is dense per block.

B batch, H heads, U units, E width of a head; S strands, N blocks of a strand, W units of a block, X keys of a block
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Blocks(NamedTuple):
    """Blocks of `size` units, each beside the `window` keys before and after it.

    With a dilation d, every d-th unit makes a strand, within which the band of the pattern is an ordinary one.
    """

    num_units: int
    size: int
    window: int
    dilation: int = 1

    @property
    def per_strand(self) -> int:
        """Number of blocks of each strand; the last may be filled up."""
        return -(-self.num_units // (self.dilation * self.size))

    def queries(self, x_BHUE: Tensor) -> Tensor:
        """[B, H, U, E] as [B, S, N, H, W, E]."""
        return self._strands(x_BHUE).unflatten(3, (self.per_strand, self.size)).permute(0, 2, 3, 1, 4, 5)

    def keys(self, x_BHUE: Tensor) -> Tensor:
        """[B, H, U, E] as [B, S, N, H, X, E], zeros beyond the ends."""
        padded = F.pad(self._strands(x_BHUE), (0, 0, self.window, self.window))
        return padded.unfold(3, self.size + 2 * self.window, self.size).permute(0, 2, 3, 1, 5, 4)

    def units(self, x_BSNHWE: Tensor) -> Tensor:
        """[B, S, N, H, W, E] as [B, H, U, E]: the way back from `queries`."""
        return x_BSNHWE.permute(0, 3, 2, 4, 1, 5).flatten(2, 4)[:, :, : self.num_units]

    def in_band(self, device: torch.device) -> Tensor:
        """Which keys are in the band of which unit of their block, bool [W, X]."""
        keys_X = torch.arange(self.size + 2 * self.window, device=device)
        steps_WX = keys_X - torch.arange(self.size, device=device)[:, None]
        return (steps_WX >= 0) & (steps_WX <= 2 * self.window)

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Which units the queries [S, N, W, 1] and the keys [S, N, 1, X] are; beyond the ends, the unit at the end."""
        strands_S11 = torch.arange(self.dilation, device=device)[:, None, None]
        starts_N1 = torch.arange(self.per_strand, device=device)[:, None] * self.size
        last = self.num_units - 1
        queries_SNW, keys_SNX = (
            ((starts_N1 + steps) * self.dilation + strands_S11).clamp(min=0, max=last)
            for steps in (
                torch.arange(self.size, device=device),
                torch.arange(-self.window, self.size + self.window, device=device),
            )
        )
        return queries_SNW[..., :, None], keys_SNX[..., None, :]

    def _strands(self, x_BHUE: Tensor) -> Tensor:
        """[B, H, S, N * W, E], filled up with zeros."""
        length = self.per_strand * self.size
        padded = F.pad(x_BHUE, (0, 0, 0, length * self.dilation - self.num_units))
        return padded.unflatten(2, (length, self.dilation)).transpose(2, 3)


def round_up(number: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `number`."""
    return math.ceil(number / multiple) * multiple
