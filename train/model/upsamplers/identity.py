"""No UP: the vector of a character is the vector of its unit."""

from typing import Any, Literal

from torch import Tensor, nn

from preprocess.settings import settings
from train.downsamplers.grouping import Grouping
from train.layers import Cost, Dimensions


@settings
class Config:
    name: Literal["identity"] = "identity"

    def build(self, dimensions: Dimensions) -> "Identity":
        return Identity()

    def check(self, downsampler: Any) -> list[str]:
        return []


class Identity(nn.Module):
    """Hands each character the vector of its unit."""

    def forward(
        self,
        units_BUD: Tensor,
        grouping: Grouping,
        characters_BCD: Tensor,
        mask_BC: Tensor,
        targets_BP: Tensor | None = None,
    ) -> Tensor:
        unit_BC = grouping.unit_BC.expand(units_BUD.shape[0], -1)
        if targets_BP is not None:
            unit_BC = unit_BC.gather(1, targets_BP)
        return gather_rows(units_BUD, unit_BC)

    def costs(self, length: int, num_targets: int | None, num_units: int) -> list[Cost]:
        return []


def gather_rows(x_BCD: Tensor, index_BP: Tensor) -> Tensor:
    """The rows `index_BP` of each example, [B, P, D]."""
    return x_BCD.gather(1, index_BP[..., None].expand(-1, -1, x_BCD.shape[-1]))
