"""No segments in the trunk: the embedder adds them at the input, or they are unused."""

from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import SegmentsConfig, TrunkConfig


@settings
class Config(SegmentsConfig):
    """No segments inside the trunk, as in BERT and CANINE (Devlin et al., arXiv 1810.04805, section 3)."""

    name: Literal["none"] = "none"

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "NoSegments":
        return NoSegments()


class NoSegments(nn.Module):
    def forward(self, segments_BU: Tensor) -> None:
        return None
