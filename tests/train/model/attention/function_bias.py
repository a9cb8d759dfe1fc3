"""A bias from any function of pairs, for tests of attention patterns."""

from collections.abc import Callable

import torch
from torch import Tensor

from tokenfree.train.model.common.attention import LayerBias


class FunctionBias(LayerBias):
    """`function(heads, queries, keys)` among `num_units` units; see `LayerBias`."""

    def __init__(self, function: Callable[[slice, Tensor, Tensor], Tensor], num_units: int) -> None:
        self.function, self.num_units = function, num_units

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        return self.function(heads, queries, keys)

    def dense(self, heads: slice) -> Tensor:
        units = torch.arange(self.num_units)
        return self.function(heads, units[:, None], units[None, :])
