"""DOWN by attention from one learned query to `rate` characters, instead of CANINE's convolution.

R characters of a unit, X values of all of them, N width of a character, D width of a unit
"""

from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, FanInDense, count_parameters
from tokenfree.train.model.downsamplers.strided import Strided, StridedConfig


@settings
class Config(StridedConfig):
    """Attention pooling over groups of fixed size instead of CANINE's convolution, as Byte2Word does over words (Lee,
    Guo, Qiu, arXiv 2211.12677, section 3). Local layers, CLS and LayerNorm are the same as in `strided_conv`.
    """

    name: Literal["strided_attention"] = "strided_attention"

    def build(self, dimensions: Dimensions) -> "StridedAttention":
        return StridedAttention(dimensions, self)


class StridedAttention(Strided):
    """softmax(q K^T / sqrt(N)) V over the `rate` characters of a group, with one head and no further positions."""

    def add_pooling(self, narrow: int, width: int) -> None:
        self.query = nn.Embedding(1, narrow)
        self.key = FanInDense(narrow, narrow, bias=False)
        self.value = FanInDense(narrow, narrow, bias=False)

    def pool(self, groups_BUX: Tensor) -> Tensor:
        x_BURN = groups_BUX.unflatten(-1, (self.rate, -1))
        logits_BUR = (self.key(x_BURN) * self.query.weight).sum(dim=-1) * x_BURN.shape[-1] ** -0.5
        weights_BUR = torch.softmax(logits_BUR, dim=-1)
        return self.widened((weights_BUR[..., None] * self.value(x_BURN)).sum(dim=-2))

    def pooling_cost(self, num_units: int) -> Cost:
        narrow, width = self.key.in_features, self.norm.normalized_shape[0]
        parameters = count_parameters(self.query, self.key, self.value, self.widen, self.norm)
        mixed = num_units * self.rate * 2 * (narrow**2 + narrow)
        widened = 0 if isinstance(self.widen, nn.Identity) else num_units * narrow * width
        return Cost("attention pooling + norm", (num_units, width), parameters, mixed + widened)
