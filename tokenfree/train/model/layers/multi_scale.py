"""Layer of the multi-scale Transformer: LN(H + ReLU(attention)), without FFN."""

import dataclasses
from collections.abc import Callable
from typing import Literal

from torch import Tensor

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import Core, Heads, LayerBias
from tokenfree.train.model.common.basic import Dimensions, Dropout, GlorotDense, layer_norm, linear
from tokenfree.train.model.common.slots import Layer, LayerConfig


@settings
class Config(LayerConfig):
    """Layer of the multi-scale Transformer (Guo et al., arXiv 1912.00544): LN(H + ReLU(MSMSA(H))), without FFN.

    Attributes:
        head_width: width of a head; null: width / heads. It need not divide the width.
    """

    name: Literal["multi_scale"] = "multi_scale"
    head_width: Positive | None = None

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core]) -> "MultiScaleLayer":
        # Dropout applies only to the attention output.
        core = build_core(dataclasses.replace(dimensions, dropout=0.0))
        return MultiScaleLayer(dimensions, core, self.head_width or dimensions.head_width)


class MultiScaleLayer(Layer):
    """Attention with ReLU, residual and LayerNorm. Heads with a window of one unit replace the FFN."""

    def __init__(self, dimensions: Dimensions, core: Core, head_width: int) -> None:
        super().__init__()
        width, self.num_heads, self.head_width = dimensions.width, dimensions.heads, head_width
        self.query = GlorotDense(width, self.num_heads * head_width)
        self.key = GlorotDense(width, self.num_heads * head_width)
        self.value = GlorotDense(width, self.num_heads * head_width)
        self.core = core
        self.output = GlorotDense(self.num_heads * head_width, width)
        self.norm = layer_norm(width)
        self.dropout = Dropout(dimensions.dropout)

    def forward(
        self, x_BUD: Tensor, valid_BU: Tensor, bias: LayerBias | None = None, global_BU: Tensor | None = None
    ) -> Tensor:
        source_BKD, valid_BK = self.core.source(x_BUD, valid_BU)
        # If all heads have a window of one unit, keep their queries and keys in the graph: distributed
        # training waits for the gradients of all weights.
        left_out = self.core.num_alone if bias is None and self.core.num_alone < self.num_heads else 0
        q_BUD, k_BKD = (
            linear(x, layer.weight[left_out * self.head_width :], layer.bias[left_out * self.head_width :])
            for layer, x in ((self.query, x_BUD), (self.key, source_BKD))
        )
        projected = (q_BUD, k_BKD, self.value(source_BKD))
        q_BHUE, k_BHKE, v_BHKE = (x.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for x in projected)
        heads = Heads(q_BHUE, k_BHKE, v_BHKE, valid_BK, source_BKD, global_BK=global_BU)
        context_BHUE = self.core(heads if bias is None else bias.bind(heads))
        attended_BUD = self.output(context_BHUE.transpose(1, 2).flatten(2)).relu()
        return self.norm(x_BUD + self.dropout(attended_BUD))

    def multiply_accumulates(self, num_units: int) -> int:
        width, inner = self.query.in_features, self.query.out_features
        num_keys = self.core.num_keys(num_units)
        pairs = self.core.num_pairs(num_units, num_keys, self.num_heads)
        dense = 2 * (num_units + num_keys) * width * inner + 2 * pairs * (inner // self.num_heads)
        return dense + self.core.projection_multiply_accumulates(num_units, width)
