"""The layer of BERT and CANINE: attention, then a position-wise FFN, each with residual and LayerNorm."""

from collections.abc import Callable
from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import Core
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.bert_layer import BertLayer
from tokenfree.train.model.common.slots import LayerConfig


@settings
class Config(LayerConfig):
    """The post-LN layer of BERT (Devlin et al., arXiv 1810.04805, section 3), which CANINE has as well."""

    name: Literal["bert"] = "bert"

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core]) -> BertLayer:
        return BertLayer(dimensions, build_core(dimensions))
