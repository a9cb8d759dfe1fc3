"""Vectors of numbers in place of symbols, for tasks that have no text: a dense layer, plus position; CLS is learned.

B batch, C vectors, S numbers of a vector, D width
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
    """Vectors of numbers through a dense layer (Guo et al., arXiv 1912.00544, the synthetic task), and a class node.

    There is no LayerNorm, which would take away how long a vector is.

    Attributes:
        size: numbers of a vector.
    """

    name: Literal["vectors"] = "vectors"
    size: Positive = 50
    positions: InputPositions = "none"
    max_characters: Positive = 512

    symbols = "vectors"

    def build(self, dimensions: Dimensions) -> "VectorEmbedder":
        return VectorEmbedder(dimensions, self)


class VectorEmbedder(Embedder):
    """dense(x) + position, then dropout; in place of the first vector, a learned one: the class node."""

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
        """Vectors [B, C, D] of float ones, which come in place of codepoints; segments are not read."""
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
