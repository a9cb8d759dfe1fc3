"""Causal attention: every unit sees itself and the valid units before it, so that it can be asked for the next one.

B batch, U units (Q as queries, K as keys), H heads, E width of a head
"""

from typing import Literal

import torch
from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import ALL_HEADS, Core, Heads, hide
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import AttentionConfig


@settings
class Config(AttentionConfig):
    """Causal attention (Vaswani et al., arXiv 1706.03762, section 3.2.3): no unit sees one that comes after it."""

    name: Literal["causal"] = "causal"

    adds_to_values = True

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> "CausalCore":
        return CausalCore(dimensions.dropout)


class CausalCore(Core):
    """Every query sees the valid keys up to its own place; the first unit, CLS, is always valid."""

    def forward(self, heads: Heads) -> Tensor:
        q_BHQE, k_BHKE = heads.queries_BHQE, heads.keys_BHKE
        places_U = torch.arange(k_BHKE.shape[2], device=q_BHQE.device)
        queries_Q1, keys_1K = places_U[:, None], places_U[None, :]
        hidden_B1QK = hide((keys_1K <= queries_Q1) & heads.valid_BK[:, None, :], q_BHQE.dtype)[:, None]
        bias = None if heads.bias is None else heads.bias.dense(ALL_HEADS)
        of_pairs = None
        if heads.offset_values is not None:
            of_pairs = heads.offset_values.of_pairs(ALL_HEADS, queries_Q1, keys_1K)
        return self.attend(q_BHQE, k_BHKE, heads.values_BHKE, hidden_B1QK, bias, of_pairs)

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        assert num_queries == num_keys, "what comes before is defined among the same units"
        return num_heads * num_keys * (num_keys + 1) // 2
