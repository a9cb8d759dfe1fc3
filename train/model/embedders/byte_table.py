"""A row for each byte, plus position and segment. The bytes 0 to 4 are PAD, UNK, CLS, SEP and MASK: text lacks them.

B batch, C bytes, D width
"""

from typing import Literal

from preprocess.settings import settings
from train.embedders.characters import CharacterEmbedder, InputConfig, too_long
from train.embedders.subword_table import Table
from train.layers import Dimensions

NUM_BYTES = 256


@settings
class Config(InputConfig):
    name: Literal["byte_table"] = "byte_table"

    symbols = "bytes"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(Table("byte table", NUM_BYTES, dimensions.width), dimensions, self)

    def check(self, width: int, length: int | None) -> list[str]:
        return too_long(length, self)
