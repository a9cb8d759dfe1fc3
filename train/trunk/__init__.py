"""ENCODE: the deep stack of layers over the units, with its attention pattern and its position code."""

import functools
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import Slot, part, settings
from train.layers import Activation, Cost, Dimensions, count_parameters

Attention = Annotated[Any, Slot("train.trunk.attention", "full")]
Layer = Annotated[Any, Slot("train.trunk.layers", "bert")]
Positions = Annotated[Any, Slot("train.trunk.positions", "none")]


@settings
class TrunkConfig:
    """The deep stack; `heads`, `inner_width`, `dropout` and `activation` hold for the character layers as well."""

    layers: Annotated[int, Field(ge=1)] = 12
    heads: Annotated[int, Field(ge=1)] = 12
    inner_width: Annotated[int, Field(ge=1)] | None = None  # four times the width
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    activation: Activation = "gelu_tanh"
    layer: Layer = part("train.trunk.layers", "bert")
    attention: Attention = part("train.trunk.attention", "full")
    positions: Positions = part("train.trunk.positions", "none")

    def build(self, dimensions: Dimensions) -> "Trunk":
        return Trunk(self, dimensions)

    def check(self, length: int | None) -> Iterable[str]:
        """The mistakes of the pattern and the position code; `length` counts characters."""
        yield from self.attention.check(self, length)
        yield from self.positions.check(self, length)


class Trunk(nn.Module):
    """A stack of layers of one kind, with one pattern (which may depend on the depth) and one position code."""

    def __init__(self, config: TrunkConfig, dimensions: Dimensions) -> None:
        super().__init__()
        self.positions = config.positions.build(dimensions, config.layers)
        self.layers = nn.ModuleList(
            config.layer.build(
                dimensions, functools.partial(config.attention.build, layer=layer, num_layers=config.layers)
            )
            for layer in range(config.layers)
        )
        self.width = dimensions.width

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> Tensor:
        """The units after all layers, [B, U, D]; units that are not valid are never seen as keys."""
        bias = self.positions(units_BUD, valid_BU)
        for index, layer in enumerate(self.layers):
            layer_bias = None if bias is None else functools.partial(bias, index)
            units_BUD = layer(units_BUD, valid_BU, layer_bias)
        return units_BUD

    def costs(self, num_units: int) -> list[Cost]:
        layers: list[Any] = list(self.layers)
        multiply_accumulates = sum(layer.multiply_accumulates(num_units) for layer in layers)
        return [Cost("deep stack", (num_units, self.width), count_parameters(self), multiply_accumulates)]
