"""No UP: the vector of a character is the vector of its unit."""

from typing import Literal

from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, Grouping, gather_rows
from tokenfree.train.model.common.slots import Upsampler, UpsamplerConfig


@settings
class Config(UpsamplerConfig):
    """No upsampling: each character has the vector of its unit (the frame of CANINE, arXiv 2103.06874, section 3)."""

    name: Literal["identity"] = "identity"

    def build(self, dimensions: Dimensions) -> "NoUpsampling":
        return NoUpsampling()


class NoUpsampling(Upsampler):
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
