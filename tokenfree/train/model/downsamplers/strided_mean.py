"""DOWN by the mean of so many characters, in the place of CANINE's convolution.

B batch, U units, X values of a group of characters, D width
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, count_parameters
from tokenfree.train.model.common.slots import DownsamplerConfig
from tokenfree.train.model.downsamplers.strided import Strided


@settings
class Config(DownsamplerConfig):
    """Mean pooling, which the code of CANINE (arXiv 2103.06874) says was tried in place of its convolution, and
    diverged. Local layers, CLS and LayerNorm are as those of `strided_conv`.

    Attributes:
        rate: characters of a unit, 1 to a million; what is left of the length after whole units has the last unit.
        block: characters that see each other in the local layers, at least 1.
        layers: local layers; 0: none.
        align_mask: let the mask entry of a unit describe the unit's own characters, and not, as the official code does,
            those of the next unit.
    """

    name: Literal["strided_mean"] = "strided_mean"
    rate: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    block: Annotated[int, Field(ge=1)] = 128
    layers: Annotated[int, Field(ge=0, le=1000)] = 1
    align_mask: bool = False

    changes_width = True

    def build(self, dimensions: Dimensions) -> "StridedMean":
        return StridedMean(dimensions, rate=self.rate, block=self.block, layers=self.layers, align_mask=self.align_mask)

    def num_units(self, length: int) -> int:
        return max(length, self.rate) // self.rate


class StridedMean(Strided):
    """The mean of the vectors of `rate` characters, which knows nothing of their order."""

    def pool(self, groups_BUX: Tensor) -> Tensor:
        """The mean of each group, brought to the width of the units as CLS is: [B, U, D]."""
        return self.widened(groups_BUX.unflatten(-1, (self.rate, -1)).mean(dim=-2))

    def pooling_cost(self, num_units: int) -> Cost:
        parameters = count_parameters(self.widen, self.norm)
        width = self.norm.normalized_shape[0]
        widened = 0 if isinstance(self.widen, nn.Identity) else num_units * self.widen.in_features * width
        return Cost("mean + norm", (num_units, width), parameters, widened)
