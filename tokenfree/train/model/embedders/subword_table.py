"""A row per subword, plus position and segment: the input of BERT. Ids are passed as codepoints."""

from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.train.model.common.basic import Dimensions, embedding
from tokenfree.train.model.embedders.characters import CharacterEmbedder, InputConfig


@settings
class Config(InputConfig):
    """A table of subwords (BERT, Devlin et al., arXiv 1810.04805, section 3).

    Attributes:
        size: number of rows: subwords of the vocabulary and its special symbols. Pretraining adds rows if the
            data have more subwords.
        max_characters: maximum number of subwords of an example; number of rows of the position table.
    """

    name: Literal["subword_table"] = "subword_table"
    size: Positive = 30522
    max_characters: Positive = 512
    segments: NonNegative = 2

    symbols = "subwords"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(Table("subword table", self.size, dimensions.width), dimensions, self)


class Table(nn.Module):
    def __init__(self, name: str, size: int, width: int) -> None:
        super().__init__()
        self.name = name
        self.rows = nn.Embedding(size, width)

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        return embedding(codepoints_BC, self.rows.weight)
