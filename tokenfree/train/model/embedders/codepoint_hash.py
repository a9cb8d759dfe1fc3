"""K-way codepoint hash embedding, which has a vector for every codepoint without a vocabulary.

B batch, C characters, K hashes, D width
"""

from typing import Literal

from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder
from tokenfree.train.model.embedders.hashing import HashConfig, HashTables


@settings
class Config(HashConfig):
    """K hash functions of the codepoint, each with its table (CANINE, Clark et al., arXiv 2103.06874, section 3.1)."""

    name: Literal["codepoint_hash"] = "codepoint_hash"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(HashTable(self, dimensions.width), dimensions, self)


class HashTable(HashTables):
    """A table that concatenates the K rows of a codepoint."""

    name = "hash tables"

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        """Return vectors [B, C, D] of int64 codepoints.

        Raises:
            IndexError: A value is not a codepoint.
        """
        rows_BCK = self.hashed(codepoints_BC[..., None]) + self.offsets_K
        return self.rows(self.refuse_invalid(rows_BCK, codepoints_BC)).flatten(2)
