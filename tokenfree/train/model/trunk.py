"""ENCODE: the stack of layers over the units, with its attention, positions and segments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import LayerBias, SharedBias, SumBias
from tokenfree.train.model.common.basic import Cost, Dimensions, count_parameters
from tokenfree.train.model.common.slots import TrunkSettings


@settings
class TrunkConfig(TrunkSettings):
    """Stack of Transformer layers; the defaults are BERT base (Devlin et al., arXiv 1810.04805, section 3)."""

    def build(self, dimensions: Dimensions) -> Trunk:
        return Trunk(self, dimensions)


class Trunk(nn.Module):
    """A stack of equal layers with one attention pattern (which may depend on depth) and one position encoding."""

    positions: Any  # a `Positions`; its class depends on the config
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
        """Return the units after all layers, [B, U, D]. Only the trunk's segments use `segments_BU`, int64. None: 0."""
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
        if segments_BU is None:
            segments_BU = torch.zeros(1, units_BUD.shape[1], dtype=torch.int64, device=units_BUD.device)
        added = [self.positions(units_BUD, valid_BU), self.segments(segments_BU)]
        biases = [shared(some) for some in added if some is not None]
        if not biases:
            return [None] * len(self.layers)
        return biases[0] if len(biases) == 1 else shared(sums(*biases))


def shared(biases: Sequence[LayerBias]) -> Sequence[LayerBias]:
    """Return the biases of all layers for one forward pass. Layers with the same object compute its values once."""
    return [SharedBias(biases[0])] * len(biases) if biases[0] is biases[-1] else biases


def sums(some: Sequence[LayerBias], others: Sequence[LayerBias]) -> list[LayerBias]:
    """Return the sum of two biases in each layer: the same object if both are the same for all layers."""
    if some[0] is some[-1] and others[0] is others[-1]:
        return [SumBias(some[0], others[0])] * len(some)
    return [SumBias(*both) for both in zip(some, others, strict=True)]
