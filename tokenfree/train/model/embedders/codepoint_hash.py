"""K-way codepoint hash embedding, which has a vector for every codepoint without a vocabulary."""

from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder
from tokenfree.train.model.embedders.hashing import HashConfig, HashTables


@settings
class Config(HashConfig):
    """K hash functions of the codepoint, each with its table (CANINE, Clark et al., arXiv 2103.06874, section 3.1)."""

    name: Literal["codepoint_hash"] = "codepoint_hash"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(HashTables(self, dimensions.width), dimensions, self)
