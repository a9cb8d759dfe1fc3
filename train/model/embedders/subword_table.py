"""A row for each subword, plus position and segment: the input of BERT (Devlin et al. 2019). Ids come as codepoints.

B batch, C subwords, D width
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.embedders.characters import CharacterEmbedder, CharacterTable, InputConfig, too_long
from train.layers import Dimensions


@settings
class Config(InputConfig):
    name: Literal["subword_table"] = "subword_table"
    size: Annotated[int, Field(ge=1)] = 30522  # rows: the subwords of the vocabulary and its special symbols
    max_characters: Annotated[int, Field(ge=1)] = 512  # rows of positions, which here are subwords
    segments: Annotated[int, Field(ge=0)] = 2

    symbols = "subwords"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(Table("subword table", self.size, dimensions.width), dimensions, self)

    def check(self, width: int, length: int | None) -> list[str]:
        return too_long(length, self)


class Table(CharacterTable):
    """Rows of a table, one for each id from 0 on; other ids are an error on look-up."""

    def __init__(self, name: str, size: int, width: int) -> None:
        super().__init__()
        self.name = name
        self.rows = nn.Embedding(size, width)

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        return self.rows(codepoints_BC)
