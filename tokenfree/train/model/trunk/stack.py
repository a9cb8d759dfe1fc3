"""ENCODE: the deep stack of layers over the units, with its attention pattern, position code and segments.

B batch, U units, D width
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.preprocess.common.refused import problems_of
from tokenfree.preprocess.common.settings import part, settings
from tokenfree.train.model.common.cost import Cost, count_parameters
from tokenfree.train.model.common.dimensions import Activation, Dimensions
from tokenfree.train.model.common.position_bias import LayerBias
from tokenfree.train.model.common.slots.contracts import PartSlot
from tokenfree.train.model.common.slots.trunk import Layer, Positions, Segments
from tokenfree.train.model.trunk.bias_reuse import reused, sums

LAYER = PartSlot("tokenfree.train.model.trunk.layers", "bert")
ATTENTION = PartSlot("tokenfree.train.model.trunk.attention", "full")
POSITIONS = PartSlot("tokenfree.train.model.trunk.positions", "none")
SEGMENTS = PartSlot("tokenfree.train.model.trunk.segments", "none")


@settings
class TrunkConfig:
    """The deep stack, by default of BERT's base size (Devlin et al., arXiv 1810.04805, section 3).

    `heads`, `inner_width`, `dropout` and `activation` hold for the layers over characters as well.

    Attributes:
        layers: layers of the stack, at least 1.
        heads: attention heads of each layer; must divide the width.
        inner_width: width inside the FFN; null: four times the width.
        dropout: share of values set to 0 in training, 0 to below 1.
        activation: `gelu_tanh`, GELU's tanh approximation, as in the official code of CANINE, or `gelu`, the exact one.
        layer: the kind of layer.
        attention: which unit sees which.
        positions: the position code inside the stack.
        segments: segments inside the stack.
    """

    layers: Annotated[int, Field(ge=1, le=1000)] = 12
    heads: Annotated[int, Field(ge=1)] = 12
    inner_width: Annotated[int, Field(ge=1)] | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    activation: Activation = "gelu_tanh"
    layer: Annotated[Any, LAYER] = part(LAYER)
    attention: Annotated[Any, ATTENTION] = part(ATTENTION)
    positions: Annotated[Any, POSITIONS] = part(POSITIONS)
    segments: Annotated[Any, SEGMENTS] = part(SEGMENTS)

    def build(self, dimensions: Dimensions) -> "Trunk":
        """The stack with fresh weights."""
        return Trunk(self, dimensions)

    def check(self, num_units: int | None) -> Iterable[str]:
        """What is wrong with its parts for examples of `num_units` units (any number where None), a line each."""
        return problems_of(
            lambda: self.attention.check(self, num_units),
            lambda: self.positions.check(self, num_units),
            lambda: self.segments.check(self),
        )


class Trunk(nn.Module):
    """A stack of layers of one kind, with one pattern (which may depend on the depth) and one position code."""

    positions: Any  # `Positions` and `Segments`: of which class, only those know who chose the part
    segments: Any

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
        self.end: nn.Module = config.layer.build_end(dimensions)
        self.width = dimensions.width

    def forward(
        self,
        units_BUD: Tensor,
        valid_BU: Tensor,
        segments_BU: Tensor | None = None,
        global_BU: Tensor | None = None,
    ) -> Tensor:
        """The units after all layers, [B, U, D].

        Args:
            units_BUD: what comes in.
            valid_BU: bool, which units are real; others are never seen as keys.
            segments_BU: int64, 0 where not given; read only by segments of the trunk.
            global_BU: bool, units that see all and are seen by all; read only by patterns that have such.
        """
        biases = self._biases(units_BUD, valid_BU, segments_BU)
        for layer, bias in zip(self.layers, biases, strict=True):
            units_BUD = layer(units_BUD, valid_BU, bias, global_BU=global_BU)
        return self.end(units_BUD)

    def costs(self, num_units: int) -> list[Cost]:
        """Its steps for one example of `num_units` units; with codes, their parameters and arithmetic come first."""
        layers = self._layers()
        multiply_accumulates = sum(layer.multiply_accumulates(num_units) for layer in layers)
        codes = count_parameters(self.positions, self.segments)
        shape, parameters = (num_units, self.width), count_parameters(self) - codes
        stack = Cost("deep stack", shape, parameters, multiply_accumulates)
        if codes == 0:
            return [stack]
        pairs = [layer.core.num_pairs(num_units, layer.core.num_keys(num_units), layer.num_heads) for layer in layers]
        code = self.positions.multiply_accumulates(num_units, pairs)
        return [Cost("positions + segments", shape, codes, code), stack]

    def _layers(self) -> list[Layer]:
        layers: list[Any] = list(self.layers)
        return layers

    def _biases(self, units_BUD: Tensor, valid_BU: Tensor, segments_BU: Tensor | None) -> Sequence[LayerBias | None]:
        """What position code and segments add in each layer of this forward pass."""
        if segments_BU is None:
            segments_BU = torch.zeros(1, units_BUD.shape[1], dtype=torch.int64, device=units_BUD.device)
        positions: Positions = self.positions
        segments: Segments = self.segments
        added = [positions(units_BUD, valid_BU), segments(segments_BU)]
        biases = [reused(some) for some in added if some is not None]
        if not biases:
            return [None] * len(self.layers)
        return biases[0] if len(biases) == 1 else sums(*biases)
