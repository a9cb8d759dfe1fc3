"""Byte table of Byte2Word, without positions and segments, which are added to words."""

from typing import Literal

import torch
from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.preprocess.text.specials import BYTE_UNK
from tokenfree.train.model.common.basic import Cost, Dimensions, ScaledEmbedding, TableRows, count_parameters
from tokenfree.train.model.common.slots import Embedder, EmbedderConfig

NUM_BYTES = 256


@settings
class Config(EmbedderConfig):
    """A row per byte, for words of bytes (Byte2Word, Lee, Guo, Qiu, arXiv 2211.12677, section 3)."""

    name: Literal["word_bytes"] = "word_bytes"

    symbols = "bytes"

    def build(self, dimensions: Dimensions) -> "WordBytes":
        return WordBytes(dimensions.width)


class WordBytes(Embedder):
    """A row per byte value, and that of UNK for others.

    They start with std 1, as no LayerNorm precedes pooling.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = ScaledEmbedding(NUM_BYTES, width, std=1.0)

    def forward(
        self, codepoints_BC: Tensor, segments_BC: Tensor | None = None, positions_BC: Tensor | None = None
    ) -> TableRows:
        is_byte_BC = (codepoints_BC >= 0) & (codepoints_BC < NUM_BYTES)
        return TableRows(self.table.weight, torch.where(is_byte_BC, codepoints_BC, BYTE_UNK), segments_BC)

    def costs(self, length: int) -> list[Cost]:
        return [Cost("byte table", (length, self.table.embedding_dim), count_parameters(self.table), 0)]
