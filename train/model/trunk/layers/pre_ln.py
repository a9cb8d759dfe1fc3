"""BERT's layer with LayerNorm before attention and FFN, on the branch (Xiong et al. 2020): the stack ends in a norm.

Byte2Word's recipe trains it (Izsak, Berchansky, Levy 2021). B batch, U units, D width
"""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from preprocess.settings import settings
from train.layers import BertLayer, Core, Dimensions, Heads, PairBias, activate, layer_norm


@settings
class Config:
    name: Literal["pre_ln"] = "pre_ln"

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core]) -> "PreLnLayer":
        return PreLnLayer(dimensions, build_core(dimensions))

    def build_end(self, dimensions: Dimensions) -> nn.Module:
        """What follows the last layer: nothing has normed the sum of all branches yet."""
        return layer_norm(dimensions.width)


class PreLnLayer(BertLayer):
    """x + attention(LN(x)), then x + FFN(LN(x))."""

    def forward(
        self,
        x_BUD: Tensor,
        valid_BU: Tensor,
        bias: PairBias | None = None,
        queries_BQD: Tensor | None = None,
        global_BU: Tensor | None = None,
    ) -> Tensor:
        """The layer at all positions, or only for the rows `queries_BQD` of `x_BUD` (attending to all of it)."""
        normed_BUD = self.attention_norm(x_BUD)
        if queries_BQD is None:
            queries_BQD, normed_BQD = x_BUD, normed_BUD
        else:
            normed_BQD = self.attention_norm(queries_BQD)
        q_BHQE = self._split(self.query(normed_BQD))
        source_BKD, valid_BK = self.core.source(normed_BUD, valid_BU)
        k_BHKE, v_BHKE = self._split(self.key(source_BKD)), self._split(self.value(source_BKD))
        context_BHQE = self.core(Heads(q_BHQE, k_BHKE, v_BHKE, valid_BK, source_BKD, bias, global_BK=global_BU))
        context_BQD = context_BHQE.transpose(1, 2).flatten(2)
        h_BQD = queries_BQD + self.dropout(self.attention_output(context_BQD))
        inner_BQI = activate(self.inner(self.norm(h_BQD)), self.activation)
        return h_BQD + self.dropout(self.outer(inner_BQI))
