"""The BERT layer that all parts of the frame share: post-LN, multi-head attention with an exchangeable core, FFN.

B batch, U sequence, Q queries, K keys, H heads, E width of a head, D width
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.dense import Dense
from train.dropout import Dropout, average, draws_here, dropout
from train.pair_bias import LayerBias, OffsetValues, PairBias, PairValues, every_pair

Activation = Literal["gelu_tanh", "gelu"]


@dataclass(frozen=True)
class Dimensions:
    """What every BERT layer of a model agrees on."""

    width: int
    heads: int
    inner_width: int
    dropout: float
    activation: Activation
    character_width: int = 0  # of the characters that come to DOWN; 0: the width

    def __post_init__(self) -> None:
        object.__setattr__(self, "character_width", self.character_width or self.width)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class Cost(NamedTuple):
    """One part of a model: shape of its output for one example, parameters, and multiply-accumulates of a forward."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    multiply_accumulates: int


def count_parameters(*modules: nn.Module) -> int:
    """Number of scalars in the parameters of `modules`."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


LAYER_NORM_EPSILON = 1e-12


def layer_norm(width: int) -> nn.LayerNorm:
    """LayerNorm with the epsilon of BERT and CANINE."""
    return nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """GELU: the tanh approximation of the official code, or the exact form of the PyTorch ports."""
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


class GlorotDense(Dense):
    """A dense layer that begins Glorot-uniform, as the multi-scale Transformer's do."""


def initialise(module: nn.Module) -> None:
    """Initialise one module as the official CANINE does (for `nn.Module.apply`).

    Dense kernels and tables: normal with std 0.02, cut at two std; convolutions: Glorot-uniform; biases 0.
    """
    if isinstance(module, (nn.Conv1d, GlorotDense)):
        nn.init.xavier_uniform_(module.weight)
    elif isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
    if isinstance(module, (nn.Linear, nn.Conv1d)) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Heads(NamedTuple):
    """Queries, keys and values of all heads, and what a core may need beside them."""

    queries_BHQE: Tensor
    keys_BHKE: Tensor
    values_BHKE: Tensor
    valid_BK: Tensor  # bool: real units; others are not to be seen as keys
    source_BKD: Tensor  # what the keys were projected from, for cores with projections of their own
    bias: PairBias | None
    offset_values: OffsetValues | None = None  # of position codes that change values
    global_BK: Tensor | None = None  # bool: units that are to see all and be seen by all, in patterns that have such


class Core(nn.Module):
    """Attention proper, between the projections: which query sees which key. Subclasses are the attention patterns."""

    num_alone = 0  # of the first heads: each query sees its own key alone, so the layer may leave both of them out

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def __call__(self, heads: Heads) -> Tensor:
        """`forward`, once the position code has had its way with the heads."""
        return super().__call__(heads.bias.bind(heads) if isinstance(heads.bias, LayerBias) else heads)

    def forward(self, heads: Heads) -> Tensor:
        """The context of every query, [B, H, Q, E]."""
        raise NotImplementedError

    def source(self, x_BUD: Tensor, valid_BU: Tensor) -> tuple[Tensor, Tensor]:
        """What keys and values are projected from, [B, K, D], and its validity [B, K]: the units, unless overridden."""
        return x_BUD, valid_BU

    def num_keys(self, num_units: int) -> int:
        """The length of `source`."""
        return num_units

    def projection_multiply_accumulates(self, num_units: int, width: int) -> int:
        """Of projections that the layer knows nothing of."""
        return 0

    def copy_projections(self, layer: nn.Module) -> list[str]:
        """Let projections of its own, if any, begin as those of `layer` around it, and name the weights set."""
        return []

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        """Pairs of a query and a key that are visible, summed over the heads, for one full example."""
        raise NotImplementedError

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        hidden: Tensor,
        bias: Tensor | None = None,
        of_pairs: PairValues | None = None,
    ) -> Tensor:
        """softmax(q k^T / sqrt(E) + hidden + bias) v with dropout on the probabilities.

        `hidden` (see `hide`) and `bias` broadcast to [..., Q, K]; they are apart because their sum would be as large as
        the logits. A pair with vectors `of_pairs` adds its own to the value.
        """
        rate = self.dropout if self.training else 0.0
        hidden = hidden.to(queries.dtype)
        by_hand = rate > 0 and draws_here(queries)
        if of_pairs is None and not by_hand:
            added = hidden if bias is None else hidden + bias.to(queries.dtype)
            return F.scaled_dot_product_attention(queries, keys, values, added, rate)
        logits = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)
        logits.add_(hidden)
        if bias is not None:
            # Of one example, a bias of as many dimensions has the gradient of the logits itself, without a sum.
            logits.add_(bias[(None,) * (logits.dim() - bias.dim())])
        weights = logits.softmax(dim=-1)
        if of_pairs is None:
            return average(weights, values, rate)
        weights = dropout(weights, rate, training=True)
        return weights @ values + of_pairs.average(weights)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Logit bias 0 where `visible`, else so low that the weight is exactly 0 beside any visible key.

    A query that sees no key at all gets equal weights, as in the PyTorch port, and never NaN. The value is not the
    lowest of the dtype, because fused kernels multiply logits by log2(e), which would overflow.
    """
    lowest = max(-1e30, torch.finfo(dtype).min / 2)
    return torch.where(visible, 0.0, lowest).to(dtype)


class FullAttention(Core):
    """Every query sees every valid key."""

    def forward(self, heads: Heads) -> Tensor:
        q_BHQE, k_BHKE = heads.queries_BHQE, heads.keys_BHKE
        hidden = hide(heads.valid_BK, q_BHQE.dtype)[:, None, None, :]
        if heads.bias is None:
            return self.attend(q_BHQE, k_BHKE, heads.values_BHKE, hidden)
        if isinstance(heads.bias, LayerBias) and heads.offset_values is None and not torch.is_grad_enabled():
            return self.attend(q_BHQE, k_BHKE, heads.values_BHKE, heads.bias.of_visible(heads.valid_BK, hidden))
        queries_Q1 = torch.arange(q_BHQE.shape[2], device=q_BHQE.device)[:, None]
        keys_1K = torch.arange(k_BHKE.shape[2], device=q_BHQE.device)[None, :]
        bias = every_pair(heads.bias, slice(None), queries_Q1, keys_1K)
        values = heads.offset_values
        of_pairs = None if values is None else values.of_pairs(slice(None), queries_Q1, keys_1K)
        return self.attend(q_BHQE, k_BHKE, heads.values_BHKE, hidden, bias, of_pairs)

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        return num_heads * num_queries * num_keys


class BertLayer(nn.Module):
    """One post-LN Transformer layer (Devlin et al. 2019) around an attention core."""

    def __init__(self, dimensions: Dimensions, core: Core) -> None:
        super().__init__()
        width = dimensions.width
        self.num_heads = dimensions.heads
        self.activation: Activation = dimensions.activation
        self.query = Dense(width, width)
        self.key = Dense(width, width)
        self.value = Dense(width, width)
        self.core = core
        self.attention_output = Dense(width, width)
        self.attention_norm = layer_norm(width)
        self.inner = Dense(width, dimensions.inner_width)
        self.outer = Dense(dimensions.inner_width, width)
        self.norm = layer_norm(width)
        self.dropout = Dropout(dimensions.dropout)

    def forward(
        self,
        x_BUD: Tensor,
        valid_BU: Tensor,
        bias: PairBias | None = None,
        queries_BQD: Tensor | None = None,
        global_BU: Tensor | None = None,
    ) -> Tensor:
        """The layer at all positions, or only for the rows `queries_BQD` of `x_BUD` (attending to all of it)."""
        queries_BQD = x_BUD if queries_BQD is None else queries_BQD
        q_BHQE = self._split(self.query(queries_BQD))
        source_BKD, valid_BK = self.core.source(x_BUD, valid_BU)
        k_BHKE, v_BHKE = self._split(self.key(source_BKD)), self._split(self.value(source_BKD))
        context_BHQE = self.core(Heads(q_BHQE, k_BHKE, v_BHKE, valid_BK, source_BKD, bias, global_BK=global_BU))
        context_BQD = context_BHQE.transpose(1, 2).flatten(2)
        h_BQD = self.attention_norm(queries_BQD + self.dropout(self.attention_output(context_BQD)))
        inner_BQI = activate(self.inner(h_BQD), self.activation)
        return self.norm(h_BQD + self.dropout(self.outer(inner_BQI)))

    def multiply_accumulates(self, num_units: int, num_queries: int | None = None) -> int:
        """Of one forward over `num_units` positions, or of `num_queries` rows that attend to them."""
        num_queries = num_units if num_queries is None else num_queries
        width, inner_width = self.query.in_features, self.inner.out_features
        num_keys = self.core.num_keys(num_units)
        dense = num_queries * (2 * width * width + 2 * width * inner_width) + num_keys * 2 * width * width
        pairs = self.core.num_pairs(num_queries, num_keys, self.num_heads)
        return (
            dense + 2 * pairs * (width // self.num_heads) + self.core.projection_multiply_accumulates(num_units, width)
        )

    def _split(self, x_BUD: Tensor) -> Tensor:
        return x_BUD.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def same_padding(kernel: int) -> tuple[int, int]:
    """Zeros to the left and right of a stride-1 convolution that keeps the length; the odd one goes to the right."""
    return (kernel - 1) // 2, kernel // 2


def round_up(number: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `number`."""
    return math.ceil(number / multiple) * multiple
