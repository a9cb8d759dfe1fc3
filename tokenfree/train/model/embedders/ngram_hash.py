"""Vocabulary-free n-grams: the sum over the hashed n-grams of orders 1 to N that start at each character."""

from typing import Annotated, Literal

from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder
from tokenfree.train.model.embedders.codepoint_hash import HashConfig, HashTables


@settings
class Config(HashConfig):
    """Hashed character n-grams (CANINE, Clark et al., arXiv 2103.06874, section 3.1, vocabulary-free n-grams).

    Attributes:
        orders: length N of the longest n-grams in characters.
    """

    name: Literal["ngram_hash"] = "ngram_hash"
    orders: Annotated[int, Field(ge=1, le=16)] = 4
    buckets: Annotated[int, Field(ge=1, le=2**20)] = 15000

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(HashTables(self, dimensions.width, self.orders), dimensions, self)
