"""The byte table of Byte2Word and nothing else: places and segments are added to words (arXiv 2211.12677, section 3).

B batch, C bytes, D width
"""

from typing import Literal

import torch
from torch import Tensor, nn

from preprocess.settings import settings
from train.embedders.rows import Rows
from train.layers import Cost, Dimensions, count_parameters

NUM_BYTES = 256
PAD, UNK, CLS, SEP, MASK = range(5)  # words of one byte; text does not hold these bytes


@settings
class Config:
    name: Literal["word_bytes"] = "word_bytes"

    symbols = "bytes"

    def build(self, dimensions: Dimensions) -> "WordBytes":
        return WordBytes(dimensions.width)

    def check(self, width: int, length: int | None) -> list[str]:
        return []


class WordBytes(nn.Module):
    """A row for each byte value; what is no byte has the row of UNK."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(NUM_BYTES, width)

    def forward(
        self, codepoints_BC: Tensor, segments_BC: Tensor | None = None, positions_BC: Tensor | None = None
    ) -> Rows:
        """The rows of int64 byte values; positions are not looked at."""
        is_byte_BC = (codepoints_BC >= 0) & (codepoints_BC < NUM_BYTES)
        return Rows(self.table.weight, torch.where(is_byte_BC, codepoints_BC, UNK), segments_BC)

    def costs(self, length: int) -> list[Cost]:
        return [Cost("byte table", (length, self.table.embedding_dim), count_parameters(self.table), 0)]
