"""BERT's layer with LayerNorm before attention and FFN, inside the residual branch.

The stack ends with a LayerNorm.
"""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import Core, LayerBias
from tokenfree.train.model.common.basic import Dimensions, layer_norm
from tokenfree.train.model.common.slots import LayerConfig
from tokenfree.train.model.layers.bert import BertLayer


@settings
class Config(LayerConfig):
    """Pre-LN layer (Xiong et al., arXiv 2002.04745, section 3): x + attention(LN(x)), then x + FFN(LN(x)).

    Byte2Word's training recipe uses it (Izsak, Berchansky, Levy, arXiv 2104.07705).
    """

    name: Literal["pre_ln"] = "pre_ln"

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core]) -> "PreLnLayer":
        return PreLnLayer(dimensions, build_core(dimensions))

    def build_end(self, dimensions: Dimensions) -> nn.Module:
        return layer_norm(dimensions.width)


class PreLnLayer(BertLayer):
    def forward(
        self, x_BUD: Tensor, valid_BU: Tensor, bias: LayerBias | None = None, global_BU: Tensor | None = None
    ) -> Tensor:
        normed_BUD = self.attention_norm(x_BUD)
        h_BUD = x_BUD + self.dropout(self.attend(normed_BUD, normed_BUD, valid_BU, bias, global_BU))
        return h_BUD + self.dropout(self.feed_forward(self.norm(h_BUD)))
