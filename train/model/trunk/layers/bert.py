"""The layer of BERT and CANINE: attention, then a position-wise FFN, each with residual and LayerNorm."""

from collections.abc import Callable
from typing import Literal

from preprocess.settings import settings
from train.layers import BertLayer, Core, Dimensions


@settings
class Config:
    name: Literal["bert"] = "bert"

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core]) -> BertLayer:
        return BertLayer(dimensions, build_core(dimensions))
