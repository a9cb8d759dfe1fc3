"""The layer of BERT and CANINE: attention and a position-wise FFN, each with residual and LayerNorm.

I inner width
"""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import Core, Heads, LayerBias
from tokenfree.train.model.common.basic import (
    Activation,
    Dense,
    Dimensions,
    Dropout,
    activate,
    cast_for_products,
    layer_norm,
)
from tokenfree.train.model.common.slots import Layer, LayerConfig


@settings
class Config(LayerConfig):
    """Post-LN layer of BERT (Devlin et al., arXiv 1810.04805, section 3), which CANINE also uses."""

    name: Literal["bert"] = "bert"

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core]) -> "BertLayer":
        return BertLayer(dimensions, build_core(dimensions))


class BertLayer(Layer):
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
        bias: LayerBias | None = None,
        queries_BQD: Tensor | None = None,
        global_BU: Tensor | None = None,
    ) -> Tensor:
        """Return the layer's output at all positions, [B, U, D], or for `queries_BQD`, rows of `x_BUD`, [B, Q, D]."""
        queries_BQD = x_BUD if queries_BQD is None else queries_BQD
        attended_BQD = self.attend(queries_BQD, x_BUD, valid_BU, bias, global_BU)
        h_BQD = self.attention_norm(queries_BQD + self.dropout(attended_BQD))
        return self.norm(h_BQD + self.dropout(self.feed_forward(h_BQD)))

    def attend(
        self,
        queries_BQD: Tensor,
        x_BUD: Tensor,
        valid_BU: Tensor,
        bias: LayerBias | None,
        global_BU: Tensor | None,
    ) -> Tensor:
        cast_BUD = cast_for_products(x_BUD)
        q_BHQE = self._split(self.query(cast_BUD if queries_BQD is x_BUD else queries_BQD))
        source_BKD, valid_BK = self.core.source(cast_BUD, valid_BU)
        k_BHKE, v_BHKE = self._split(self.key(source_BKD)), self._split(self.value(source_BKD))
        heads = Heads(q_BHQE, k_BHKE, v_BHKE, valid_BK, source_BKD, global_BK=global_BU)
        context_BHQE = self.core(heads if bias is None else bias.bind(heads))
        return self.attention_output(context_BHQE.transpose(1, 2).flatten(2))

    def feed_forward(self, h_BQD: Tensor) -> Tensor:
        return self.outer(activate(self.inner(h_BQD), self.activation))

    def multiply_accumulates(self, num_units: int, num_queries: int | None = None) -> int:
        num_queries = num_units if num_queries is None else num_queries
        width, inner_width = self.query.in_features, self.inner.out_features
        num_keys = self.core.num_keys(num_units)
        dense = num_queries * (2 * width * width + 2 * width * inner_width) + num_keys * 2 * width * width
        pairs = self.core.num_pairs(num_queries, num_keys, self.num_heads)
        return (
            dense
            + 2 * pairs * (width // self.num_heads)
            + self.core.projection_multiply_accumulates(num_units, width)
        )

    def _split(self, x_BUD: Tensor) -> Tensor:
        return x_BUD.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
