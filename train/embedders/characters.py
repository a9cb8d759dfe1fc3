"""What all character embedders share: the sum with segment and position embeddings, LayerNorm and dropout.

B batch, C characters, D width
"""

import torch
from torch import Tensor, nn

from preprocess.errors import UserError
from train.dropout import Dropout
from train.layers import Cost, Dimensions, count_parameters, layer_norm

NUM_SEGMENTS = 16


class CharacterTable(nn.Module):
    """Symbols to vectors without any notion of place."""

    name: str  # of the part, in tables of costs

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        """Vectors [B, C, D] of int64 codepoints."""
        raise NotImplementedError


class CharacterEmbedder(nn.Module):
    """LayerNorm(table(x) + segment + position), then dropout (CANINE, section 3.1)."""

    def __init__(self, table: CharacterTable, dimensions: Dimensions, max_characters: int) -> None:
        super().__init__()
        width = dimensions.width
        self.table = table
        self.segments = nn.Embedding(NUM_SEGMENTS, width)
        self.positions = nn.Embedding(max_characters, width)
        self.norm = layer_norm(width)
        self.dropout = Dropout(dimensions.dropout)

    def forward(
        self, codepoints_BC: Tensor, segments_BC: Tensor | None = None, positions_BC: Tensor | None = None
    ) -> Tensor:
        """Embeddings [B, C, D]; segments are 0 and positions 0 to C - 1 where not given."""
        num_characters, max_characters = codepoints_BC.shape[1], self.positions.num_embeddings
        if num_characters > max_characters:
            raise UserError(
                f"{num_characters} characters are more than model.embedder.max_characters, {max_characters}; "
                "cut the text or raise it"
            )
        segment_BCD = self.segments.weight[0] if segments_BC is None else self.segments(segments_BC)
        position_BCD = self.positions.weight[:num_characters] if positions_BC is None else self.positions(positions_BC)
        return self.dropout(self.norm(self.table(codepoints_BC) + segment_BCD + position_BCD))

    def costs(self, length: int) -> list[Cost]:
        shape = (length, self.positions.embedding_dim)
        return [
            Cost(self.table.name, shape, count_parameters(self.table), 0),
            Cost("position table", shape, count_parameters(self.positions), 0),
            Cost("segment table + embedding norm", shape, count_parameters(self.segments, self.norm), 0),
        ]


def too_long(length: int | None, max_characters: int) -> list[str]:
    """The mistake of examples longer than the position table."""
    if length is None or length <= max_characters:
        return []
    return [f"model.embedder.max_characters: {max_characters} is less than the length of an example, {length}"]


def refuse_invalid(buckets: Tensor, codepoints_BC: Tensor, num_rows: int) -> Tensor:
    """`buckets` [B, C, ...], moved past the end of the table (an error on look-up) where a codepoint is not Unicode.

    There is no UNK in CANINE. An explicit test would have to wait for the device at every step.
    """
    invalid_BC = (codepoints_BC < 0) | (codepoints_BC > 0x10FFFF)
    return buckets + torch.where(invalid_BC, num_rows, 0).reshape(*codepoints_BC.shape, *[1] * (buckets.dim() - 2))
