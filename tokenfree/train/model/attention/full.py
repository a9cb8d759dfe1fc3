"""Full attention: every unit attends to every valid unit."""

from typing import Literal

from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import Core, Heads, hide
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import AttentionConfig


@settings
class Config(AttentionConfig):
    """Full attention (Vaswani et al., arXiv 1706.03762, section 3.2): every unit attends to every valid one."""

    name: Literal["full"] = "full"

    adds_to_values = True

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> "FullAttention":
        return FullAttention(dimensions.dropout)


class FullAttention(Core):
    def forward(self, heads: Heads) -> Tensor:
        return self.attend_to_all(heads, hide(heads.valid_BK, heads.queries_BHQE.dtype)[:, None, None, :])

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        return num_heads * num_queries * num_keys
