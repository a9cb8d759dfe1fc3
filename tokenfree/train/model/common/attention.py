"""Attention between the projections: the base of all patterns, and the full one.

B batch, U units, Q queries, K keys, H heads, E width of a head, D width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenfree.train.model.common.dropout import average, draws_here, dropout
from tokenfree.train.model.common.heads import Heads, PairValues
from tokenfree.train.model.common.position_bias import ALL_HEADS

FEW_KEYS = 256  # of so many and fewer, attention in bfloat16 trains sooner in parts on the CPU


class Core(nn.Module):
    """Attention proper, softmax(Q K^T / sqrt(E)) V (Vaswani et al., arXiv 1706.03762, equation 1), seen by some pairs.

    Subclasses are the attention patterns, which say with `forward` and `num_pairs` which pairs see each other; the slot
    asks for both (`Attention` in slots/trunk.py). Here stands what most of them answer.
    """

    num_alone = 0  # of the first heads: each query sees its own key alone, so the layer may leave both of them out

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def source(self, x_BUD: Tensor, valid_BU: Tensor) -> tuple[Tensor, Tensor]:
        """What keys and values are projected from, [B, K, D], and bool [B, K], which of it is real: the units."""
        return x_BUD, valid_BU

    def num_keys(self, num_units: int) -> int:
        """K, the length of `source`."""
        return num_units

    def projection_multiply_accumulates(self, num_units: int, width: int) -> int:
        """Multiply-accumulates of projections that the layer knows nothing of: there are none."""
        return 0

    def copy_projections(self, layer: nn.Module) -> list[str]:
        """Let projections of its own begin as those of `layer` around it, and name the weights set: there are none."""
        return []

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        hidden: Tensor,
        bias: Tensor | None = None,
        of_pairs: PairValues | None = None,
    ) -> Tensor:
        """softmax(q k^T / sqrt(E) + hidden + bias) v with dropout on the probabilities, [..., H, Q, E].

        Queries are [..., H, Q, E], keys and values [..., H, K, E]. `hidden` (see `hide`) and `bias` broadcast to
        [..., H, Q, K]; they are apart because their sum would be as large as the logits. A pair with vectors `of_pairs`
        adds its own to the value.
        """
        rate = self.dropout if self.training else 0.0
        hidden = hidden.to(queries.dtype)
        in_parts = draws_here(queries) and (rate > 0 or _is_fused_slow(queries, keys))
        if of_pairs is None and not in_parts:
            added = hidden if bias is None else hidden + bias.to(queries.dtype)
            return F.scaled_dot_product_attention(queries, keys, values, added, rate)
        logits = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)
        logits.add_(hidden)
        if bias is not None:
            # Of one example, a bias of as many dimensions has the gradient of the logits itself, without a sum.
            logits.add_(bias[(None,) * (logits.dim() - bias.dim())])
        weights = logits.softmax(dim=-1)
        if of_pairs is None:
            return average(weights, values, rate) if rate > 0 else weights @ values
        weights = dropout(weights, rate, training=True)
        return weights @ values + of_pairs.average(weights)


def _is_fused_slow(queries: Tensor, keys: Tensor) -> bool:
    """Whether the backward pass of PyTorch's fused attention on the CPU costs more than it saves.

    In bfloat16 and with few keys it takes up to five times as long as the parts (`benchmarks.train.attention_parts`).
    """
    return queries.dtype == torch.bfloat16 and torch.is_grad_enabled() and keys.shape[-2] <= FEW_KEYS


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Logit bias 0 where `visible`, bool of any shape, else so low that the weight is exactly 0 beside any visible key.

    A query that sees no key at all gets equal weights, as in the PyTorch port, and never NaN. The value is not the
    lowest of the dtype, because fused kernels multiply logits by log2(e), which would overflow.
    """
    lowest = max(-1e30, torch.finfo(dtype).min / 2)
    return torch.where(visible, 0.0, lowest).to(dtype)


class FullAttention(Core):
    """Every query sees every valid key."""

    def forward(self, heads: Heads) -> Tensor:
        """The context of every query, [B, H, Q, E]."""
        q_BHQE, k_BHKE = heads.queries_BHQE, heads.keys_BHKE
        hidden = hide(heads.valid_BK, q_BHQE.dtype)[:, None, None, :]
        if heads.bias is None:
            return self.attend(q_BHQE, k_BHKE, heads.values_BHKE, hidden)
        if heads.offset_values is None and not torch.is_grad_enabled():
            return self.attend(q_BHQE, k_BHKE, heads.values_BHKE, heads.bias.plus_hidden(hidden, heads.valid_BK))
        bias, of_pairs = heads.bias.dense(ALL_HEADS), None
        if heads.offset_values is not None:
            queries_Q1 = torch.arange(q_BHQE.shape[2], device=q_BHQE.device)[:, None]
            keys_1K = torch.arange(k_BHKE.shape[2], device=q_BHQE.device)[None, :]
            of_pairs = heads.offset_values.of_pairs(ALL_HEADS, queries_Q1, keys_1K)
        return self.attend(q_BHQE, k_BHKE, heads.values_BHKE, hidden, bias, of_pairs)

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        """All of them."""
        return num_heads * num_queries * num_keys
