"""A row for each subword, plus position and segment: the input of BERT. Ids come as codepoints.

B batch, C subwords, D width
"""

from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder, CharacterTable, InputConfig


@settings
class Config(InputConfig):
    """A table of subwords (BERT, Devlin et al., arXiv 1810.04805, section 3).

    Attributes:
        size: rows: the subwords of the vocabulary and its special symbols. Pretraining adds rows if the
            data have more subwords.
        max_characters: the most subwords of an example: rows of the table of positions.
    """

    name: Literal["subword_table"] = "subword_table"
    size: Positive = 30522
    max_characters: Positive = 512
    segments: NonNegative = 2

    symbols = "subwords"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(Table("subword table", self.size, dimensions.width), dimensions, self)


class Table(CharacterTable):
    """Rows of a table, one for each id from 0 on; other ids are an error on look-up."""

    def __init__(self, name: str, size: int, width: int) -> None:
        super().__init__()
        self.name = name
        self.rows = nn.Embedding(size, width)

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        """Vectors [B, C, D] of int64 ids; IndexError for those past the table."""
        return self.rows(codepoints_BC)
