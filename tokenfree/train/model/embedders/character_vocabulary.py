"""A row for each frequent character of the corpus and one for all others, a vocabulary that CANINE does not need.

V characters with their own rows
"""

from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.preprocess.text.specials import RESERVED
from tokenfree.train.model.common.basic import Dimensions, embedding, is_exporting
from tokenfree.train.model.embedders.characters import CharacterEmbedder, InputConfig
from tokenfree.train.model.embedders.codepoint_hash import MAX_CODEPOINT

UNKNOWN = 0  # the row of characters without a row of their own


@settings
class Config(InputConfig):
    """A vocabulary of characters, as in an ablation of CANINE (Clark et al., arXiv 2103.06874, Table 6).

    Attributes:
        size: number of rows: one for unknown characters, one per special character, the others for the most
            frequent characters of the data.
    """

    name: Literal["character_vocabulary"] = "character_vocabulary"
    size: Annotated[int, Field(gt=len(RESERVED) + 1)] = 8192

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(VocabularyTable(self.size, dimensions.width), dimensions, self)


class VocabularyTable(nn.Module):
    """A table of characters, initially ASCII.

    Training sets them at its start, and every checkpoint contains them.
    """

    name = "character table"
    known_V: Tensor  # int64: codepoints with their own rows, ascending; unused entries are past Unicode

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(size, width)
        self.register_buffer("known_V", torch.zeros(size - 1, dtype=torch.int64))
        self.learn(np.arange(128))

    def learn(self, codepoints: np.ndarray) -> None:
        """Assign rows to these characters, int64, most frequent first, until the table is full."""
        room = len(self.known_V) - len(RESERVED)
        chosen = codepoints[~np.isin(codepoints, RESERVED)][:room]
        past = np.arange(MAX_CODEPOINT + 1, MAX_CODEPOINT + 1 + room - len(chosen))
        self.known_V.copy_(torch.from_numpy(np.sort(np.concatenate([RESERVED, chosen, past]))))

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        # ONNX lacks searchsorted: use a row number per codepoint.
        if is_exporting():
            rows_X = torch.full((MAX_CODEPOINT + 2,), UNKNOWN).scatter(
                0, self.known_V.clamp(max=MAX_CODEPOINT + 1), torch.arange(1, len(self.known_V) + 1)
            )
            # For values past Unicode.
            rows_X[-1] = UNKNOWN
            return self.rows(rows_X[codepoints_BC.clamp(-1, MAX_CODEPOINT + 1)])
        index_BC = torch.searchsorted(self.known_V, codepoints_BC).clamp(max=len(self.known_V) - 1)
        in_table_BC = (self.known_V[index_BC] == codepoints_BC) & (codepoints_BC <= MAX_CODEPOINT)
        return embedding(torch.where(in_table_BC, index_BC + 1, UNKNOWN), self.rows.weight)
