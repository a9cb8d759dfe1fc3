"""Vectors of numbers instead of symbols, for tasks without text: a dense layer plus position, and a learned CLS.

S values of a vector
"""

from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.basic import Cost, Dimensions, Dropout, GlorotDense, count_parameters
from tokenfree.train.model.common.slots import Embedder
from tokenfree.train.model.embedders.characters import InputPositions, PositionedConfig


@settings
class Config(PositionedConfig):
    """Dense layer over vectors of numbers, with a class node (Guo et al., arXiv 1912.00544, the synthetic task).

    There is no LayerNorm, because it would remove the norm of a vector.

    Attributes:
        size: number of values of an input vector.
    """

    name: Literal["vectors"] = "vectors"
    size: Positive = 50
    positions: InputPositions = "none"
    max_characters: Positive = 512

    symbols = "vectors"

    def build(self, dimensions: Dimensions) -> "VectorEmbedder":
        return VectorEmbedder(dimensions, self)


class VectorEmbedder(Embedder):
    """dense(x) + position, then dropout. A learned vector, the class node, replaces the first one."""

    def __init__(self, dimensions: Dimensions, config: Config) -> None:
        super().__init__()
        self.width = dimensions.width
        self.dense = GlorotDense(config.size, self.width)
        self.class_node = nn.Embedding(1, self.width)
        self.positions = config.build_positions(self.width)
        self.dropout = Dropout(dimensions.dropout)

    def forward(
        self, vectors_BCS: Tensor, segments_BC: Tensor | None = None, positions_BC: Tensor | None = None
    ) -> Tensor:
        if positions_BC is None:
            positions_BC = torch.arange(vectors_BCS.shape[1], device=vectors_BCS.device)[None]
        x_BCD = torch.where(positions_BC[..., None] == 0, self.class_node.weight[0], self.dense(vectors_BCS))
        if self.positions is not None:
            x_BCD = x_BCD + self.positions(positions_BC)
        return self.dropout(x_BCD)

    def costs(self, length: int) -> list[Cost]:
        shape, products = (length, self.width), length * self.dense.in_features * self.width
        parts = [Cost("vectors + class node", shape, count_parameters(self.dense, self.class_node), products)]
        if self.positions is not None:
            parts.append(Cost("position table", shape, count_parameters(self.positions), 0))
        return parts
