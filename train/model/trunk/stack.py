"""ENCODE: the deep stack of layers over the units, with its attention pattern, position code and segments."""

import functools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import Slot, part, settings
from train.layers import Activation, Cost, Dimensions, count_parameters
from train.pair_bias import LayerBias
from train.trunk.positions.biases import SumBias

Attention = Annotated[Any, Slot("train.trunk.attention", "full")]
Layer = Annotated[Any, Slot("train.trunk.layers", "bert")]
Positions = Annotated[Any, Slot("train.trunk.positions", "none")]
Segments = Annotated[Any, Slot("train.trunk.segments", "none")]


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
    segments: Segments = part("train.trunk.segments", "none")

    def build(self, dimensions: Dimensions) -> "Trunk":
        return Trunk(self, dimensions)

    def check(self, num_units: int | None) -> Iterable[str]:
        """The mistakes of the pattern, the position code and the segments, for `num_units` units (None: any number)."""
        yield from self.attention.check(self, num_units)
        yield from self.positions.check(self, num_units)
        yield from self.segments.check(self)


class Trunk(nn.Module):
    """A stack of layers of one kind, with one pattern (which may depend on the depth) and one position code."""

    def __init__(self, config: TrunkConfig, dimensions: Dimensions) -> None:
        super().__init__()
        self.positions = config.positions.build(dimensions, config)
        self.segments = config.segments.build(dimensions, config)
        self.layers = nn.ModuleList(
            config.layer.build(
                dimensions, functools.partial(config.attention.build, layer=layer, num_layers=config.layers)
            )
            for layer in range(config.layers)
        )
        self.end = config.layer.build_end(dimensions) if hasattr(config.layer, "build_end") else nn.Identity()
        self.width = dimensions.width

    def forward(
        self,
        units_BUD: Tensor,
        valid_BU: Tensor,
        segments_BU: Tensor | None = None,
        global_BU: Tensor | None = None,
    ) -> Tensor:
        """The units after all layers, [B, U, D]; units that are not valid are never seen as keys.

        `segments_BU` is int64, 0 where not given, and read only by segments of the trunk; `global_BU` is bool and read
        only by patterns with global units.
        """
        biases = self._biases(units_BUD, valid_BU, segments_BU)
        for layer, bias in zip(self.layers, biases, strict=True):
            units_BUD = layer(units_BUD, valid_BU, bias, global_BU=global_BU)
        return self.end(units_BUD)

    def costs(self, num_units: int) -> list[Cost]:
        layers: list[Any] = list(self.layers)
        multiply_accumulates = sum(layer.multiply_accumulates(num_units) for layer in layers)
        codes = count_parameters(self.positions, self.segments)
        shape, parameters = (num_units, self.width), count_parameters(self) - codes
        stack = Cost("deep stack", shape, parameters, multiply_accumulates)
        if codes == 0:
            return [stack]
        pairs = [layer.core.num_pairs(num_units, layer.core.num_keys(num_units), layer.num_heads) for layer in layers]
        code = self.positions.multiply_accumulates(num_units, pairs)
        return [Cost("positions + segments", shape, codes, code), stack]

    def _biases(self, units_BUD: Tensor, valid_BU: Tensor, segments_BU: Tensor | None) -> Sequence[LayerBias | None]:
        """The bias of each layer; one object for all layers where nothing of it differs, so that it computes once."""
        if segments_BU is None:
            segments_BU = torch.zeros(1, units_BUD.shape[1], dtype=torch.int64, device=units_BUD.device)
        positions, segments = self.positions(units_BUD, valid_BU), self.segments(segments_BU)
        if positions is None or segments is None:
            return positions or segments or [None] * len(self.layers)
        if positions[0] is positions[-1] and segments[0] is segments[-1]:
            return [SumBias(positions[0], segments[0])] * len(self.layers)
        return [SumBias(*both) for both in zip(positions, segments, strict=True)]
