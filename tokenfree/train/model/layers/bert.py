"""The layer of BERT and CANINE: attention, then a position-wise FFN, each with residual and LayerNorm."""

from collections.abc import Callable
from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.bert_layer import BertLayer
from tokenfree.train.model.common.slots import Attention, LayerDefaults


@settings
class Config(LayerDefaults):
    """The post-LN layer of BERT (Devlin et al., arXiv 1810.04805, section 3), which CANINE has as well."""

    name: Literal["bert"] = "bert"

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Attention]) -> BertLayer:
        """A layer with fresh weights around the pattern that `build_core` makes."""
        return BertLayer(dimensions, build_core(dimensions))
