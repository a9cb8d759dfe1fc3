"""A row per byte, plus position and segment.

Bytes 0 to 4, which text lacks, are PAD, UNK, CLS, SEP and MASK.
"""

from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder, InputConfig
from tokenfree.train.model.embedders.subword_table import Table
from tokenfree.train.model.embedders.word_bytes import NUM_BYTES


@settings
class Config(InputConfig):
    """A row per byte (ByT5, Xue et al., arXiv 2105.13626, section 3), plus position and segment."""

    name: Literal["byte_table"] = "byte_table"

    symbols = "bytes"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(Table("byte table", NUM_BYTES, dimensions.width), dimensions, self)
