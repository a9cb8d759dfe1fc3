"""A row for each frequent character of the corpus, and one for all others: the vocabulary that CANINE does without.

It is an ablation of CANINE's Table 6. B batch, C characters, D width
"""

from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.embedders.characters import CharacterEmbedder, CharacterTable, InputConfig, too_long
from train.embedders.hashing import MAX_CODEPOINT
from train.layers import Dimensions

UNKNOWN = 0  # the row of characters that have none
SPECIALS = (0x0000, *range(0xE000, 0xE033))  # PAD, CLS, SEP and so on, up to the passage markers of TyDi QA


@settings
class Config(InputConfig):
    name: Literal["character_vocabulary"] = "character_vocabulary"
    size: Annotated[int, Field(gt=len(SPECIALS) + 1)] = 8192  # rows: the unknown one, special and frequent characters

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(VocabularyTable(self.size, dimensions.width), dimensions, self)

    def check(self, width: int, length: int | None) -> list[str]:
        return too_long(length, self)


class VocabularyTable(CharacterTable):
    """The characters are learnt when training starts, and are part of every checkpoint; at first they are ASCII's."""

    name = "character table"
    known_V: Tensor  # int64: codepoints with a row of their own, ascending; numbers past Unicode where there are fewer

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(size, width)
        self.register_buffer("known_V", torch.zeros(size - 1, dtype=torch.int64))
        self.learn(np.arange(128))

    @property
    def room(self) -> int:
        """For how many characters there are rows, besides the special ones."""
        return len(self.known_V) - len(SPECIALS)

    def learn(self, codepoints: np.ndarray) -> None:
        """Give rows to these characters, the most important first, as far as there is room."""
        others = np.setdiff1d(codepoints, SPECIALS)
        chosen = codepoints[np.isin(codepoints, others)][: self.room]
        past = np.arange(MAX_CODEPOINT + 1, MAX_CODEPOINT + 1 + self.room - len(chosen))
        self.known_V.copy_(torch.from_numpy(np.sort(np.concatenate([SPECIALS, chosen, past]))))

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        place_BC = torch.searchsorted(self.known_V, codepoints_BC).clamp(max=len(self.known_V) - 1)
        is_known_BC = (self.known_V[place_BC] == codepoints_BC) & (codepoints_BC <= MAX_CODEPOINT)
        return self.rows(torch.where(is_known_BC, place_BC + 1, UNKNOWN))
