"""Vectors of numbers in place of symbols, for tasks that have no text: a dense layer, plus position; CLS is learned.

B batch, C vectors, S numbers of a vector, D width
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, Dropout, GlorotDense, PositionTable, count_parameters
from tokenfree.train.model.common.slots import Embedder, EmbedderConfig
from tokenfree.train.model.embedders.characters import InputPositions, Sinusoids


@settings
class Config(EmbedderConfig):
    """Vectors of numbers through a dense layer (Guo et al., arXiv 1912.00544, the synthetic task), and a class node.

    There is no LayerNorm, which would take away how long a vector is.

    Attributes:
        size: numbers of a vector, at least 1.
        positions: absolute positions at the input: `learned`, a row of a table each; `sinusoidal`, fixed (Vaswani et
            al., arXiv 1706.03762, section 3.5); `none`.
        max_characters: the most vectors of an example, at least 1: rows of the table of positions.
    """

    name: Literal["vectors"] = "vectors"
    size: Annotated[int, Field(ge=1)] = 50
    positions: InputPositions = "none"
    max_characters: Annotated[int, Field(ge=1)] = 512

    symbols = "vectors"

    def build(self, dimensions: Dimensions) -> "VectorEmbedder":
        return VectorEmbedder(dimensions, self)

    def check(self, width: int, length: int | None) -> list[str]:
        if length is None or self.positions == "none" or length <= self.max_characters:
            return []
        return [f"model.embedder.max_characters: {self.max_characters} is less than the length of an example, {length}"]


class VectorEmbedder(Embedder):
    """dense(x) + position, then dropout; in place of the first vector, whatever it is, a learned one: the class node.

    Args:
        dimensions: of characters.
        config: of this part.
    """

    def __init__(self, dimensions: Dimensions, config: Config) -> None:
        super().__init__()
        self.width = dimensions.width
        self.dense = GlorotDense(config.size, self.width)
        self.class_node = nn.Embedding(1, self.width)
        self.positions: PositionTable | Sinusoids | None = None
        if config.positions == "learned":
            self.positions = PositionTable(config.max_characters, self.width)
        elif config.positions == "sinusoidal":
            self.positions = Sinusoids(config.max_characters, self.width)
        self.dropout = Dropout(dimensions.dropout)

    def forward(
        self, vectors_BCS: Tensor, segments_BC: Tensor | None = None, positions_BC: Tensor | None = None
    ) -> Tensor:
        """Vectors [B, C, D] of float ones, which come in place of codepoints; positions are 0 to C - 1 where not given.

        Segments are for texts: they are not read.
        """
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
