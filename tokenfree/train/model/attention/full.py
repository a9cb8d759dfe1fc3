"""Full attention: every unit sees every valid unit."""

from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import FullAttention
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import AttentionConfig


@settings
class Config(AttentionConfig):
    """Full attention (Vaswani et al., arXiv 1706.03762, section 3.2): every unit sees every valid unit."""

    name: Literal["full"] = "full"

    adds_to_values = True

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> FullAttention:
        return FullAttention(dimensions.dropout)
