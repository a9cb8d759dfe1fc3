"""Base of all character embedders: the sum with segment and position embeddings, LayerNorm and dropout.

X positions of a table
"""

from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.train.model.common.basic import (
    STD,
    Cost,
    Dimensions,
    Dropout,
    PositionTable,
    count_parameters,
    layer_norm,
    refuse_more,
    sinusoids,
    too_many,
)
from tokenfree.train.model.common.slots import Embedder, EmbedderConfig

NUM_SEGMENTS = 16

MAX_CHARACTERS = "model.embedder.max_characters"
InputPositions = Literal["learned", "sinusoidal", "none"]


@settings
class PositionedConfig(EmbedderConfig):
    """Settings of absolute positions at the input.

    Attributes:
        positions: absolute positions at the input. `learned`: one table row per position; `sinusoidal`: fixed
            sinusoids (Vaswani et al., arXiv 1706.03762, section 3.5); `none`: no positions.
        max_characters: maximum number of symbols of an example; number of rows of the position table.
    """

    positions: InputPositions = "learned"
    max_characters: Positive = 16384

    def check(self, width: int, length: int | None) -> list[str]:
        if self.positions == "none":
            return []
        return [*too_many(length, self.max_characters, "length", MAX_CHARACTERS)]

    def build_positions(self, width: int, *, std: float = 0.5**0.5) -> "PositionTable | Sinusoids | None":
        """Return the table of positions, or None. `std` is the root mean square of sinusoids."""
        if self.positions == "sinusoidal":
            return Sinusoids(self.max_characters, width, std=std)
        return PositionTable(self.max_characters, width) if self.positions == "learned" else None


@settings
class InputConfig(PositionedConfig):
    """Settings that all character embedders share: positions and segments added to the symbols (CANINE, section 3.1).

    Attributes:
        segments: number of rows of the segment table; 0: no table.
    """

    segments: NonNegative = NUM_SEGMENTS


class Sinusoids(nn.Module):
    """Fixed sinusoidal positions (arXiv 1706.03762, section 3.5), scaled to the root mean square `std`."""

    weight: Tensor

    def __init__(self, num_positions: int, width: int, *, std: float) -> None:
        super().__init__()
        self.register_buffer("weight", sinusoids(num_positions, width) * (std * 2**0.5), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.weight)


class CharacterEmbedder(Embedder):
    """LayerNorm(table(x) + segment + position), then dropout (CANINE, section 3.1).

    Tables of costs show `name`.
    """

    table: Any

    def __init__(self, table: nn.Module, dimensions: Dimensions, config: InputConfig) -> None:
        super().__init__()
        width = dimensions.width
        self.table, self.width, self.max_characters = table, width, config.max_characters
        self.segments = nn.Embedding(config.segments, width) if config.segments else None
        # Sinusoids of size 1 would dominate the vectors of symbols, so Vaswani et al. multiply those by
        # sqrt(D). Before a LayerNorm, small sinusoids have the same effect.
        self.positions = config.build_positions(width, std=STD)
        self.norm = layer_norm(width)
        self.dropout = Dropout(dimensions.dropout)
        self.learns_characters = hasattr(table, "learn")

    def forward(
        self, codepoints_BC: Tensor, segments_BC: Tensor | None = None, positions_BC: Tensor | None = None
    ) -> Tensor:
        num_characters = codepoints_BC.shape[1]
        x_BCD = self.table(codepoints_BC)
        if self.segments is not None:
            x_BCD = x_BCD + (self.segments.weight[0] if segments_BC is None else self.segments(segments_BC))
        if self.positions is not None:
            refuse_more(num_characters, self.max_characters, "characters", MAX_CHARACTERS)
            position_vectors = (
                self.positions.weight[:num_characters]
                if positions_BC is None
                else self.positions(positions_BC)
            )
            x_BCD = x_BCD + position_vectors
        return self.dropout(self.norm(x_BCD))

    def learn(self, codepoints: np.ndarray) -> None:
        self.table.learn(codepoints)

    def costs(self, length: int) -> list[Cost]:
        shape = (length, self.width)
        parts = [Cost(self.table.name, shape, count_parameters(self.table), 0)]
        if self.positions is not None:
            parts.append(Cost("position table", shape, count_parameters(self.positions), 0))
        if self.segments is None:
            return [*parts, Cost("embedding norm", shape, count_parameters(self.norm), 0)]
        return [
            *parts,
            Cost("segment table + embedding norm", shape, count_parameters(self.segments, self.norm), 0),
        ]
