"""Causal attention: a unit attends to itself and the valid units before it, so that it can predict the next one."""

from typing import Literal

import torch
from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import Core, Heads, hide
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import AttentionConfig


@settings
class Config(AttentionConfig):
    """Causal attention (Vaswani et al., arXiv 1706.03762, section 3.2.3): no unit attends to a later one."""

    name: Literal["causal"] = "causal"

    adds_to_values = True

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> "CausalCore":
        return CausalCore(dimensions.dropout)


class CausalCore(Core):
    """Attention of each query to the valid keys up to its own position.

    The first unit, CLS, is always valid.
    """

    def forward(self, heads: Heads) -> Tensor:
        places_K = torch.arange(heads.keys_BHKE.shape[2], device=heads.keys_BHKE.device)
        visible_BKK = (places_K <= places_K[:, None]) & heads.valid_BK[:, None, :]
        return self.attend_to_all(heads, hide(visible_BKK, heads.queries_BHQE.dtype)[:, None])

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        assert num_queries == num_keys, "what comes before is defined among the same units"
        return num_heads * num_keys * (num_keys + 1) // 2
