"""K-way codepoint hash embedding (CANINE, section 3.1): no vocabulary, every codepoint has a vector.

B batch, C characters, K hashes, D width
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.embedders.characters import CharacterEmbedder, CharacterTable, InputConfig, refuse_invalid, too_long
from train.embedders.hashing import MAX_HASHES, Family, hash_buckets, multipliers
from train.layers import Dimensions


@settings
class Config(InputConfig):
    name: Literal["codepoint_hash"] = "codepoint_hash"
    hashes: Annotated[int, Field(ge=1, le=MAX_HASHES)] = 8
    buckets: Annotated[int, Field(ge=1, le=2**20)] = 16384
    family: Family = "official"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(HashTable(self, dimensions.width), dimensions, self)

    def check(self, width: int, length: int | None) -> list[str]:
        return does_not_divide(self.hashes, width) + too_long(length, self)


class HashTable(CharacterTable):
    """One table of `buckets` rows for each hash; the K rows of a codepoint are concatenated."""

    name = "hash tables"
    family: Family
    multipliers_K: Tensor
    offsets_K: Tensor

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.buckets, self.family = config.buckets, config.family
        # All tables in one, so that a single look-up gives the concatenation.
        self.rows = nn.Embedding(config.hashes * config.buckets, width // config.hashes)
        self.register_buffer("multipliers_K", multipliers(config.family, config.hashes), persistent=False)
        self.register_buffer("offsets_K", torch.arange(config.hashes) * config.buckets, persistent=False)

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        buckets_BCK = hash_buckets(codepoints_BC[..., None], self.multipliers_K, self.buckets, self.family)
        rows_BCK = refuse_invalid(buckets_BCK + self.offsets_K, codepoints_BC, self.rows.num_embeddings)
        return self.rows(rows_BCK).flatten(2)


def does_not_divide(hashes: int, width: int) -> list[str]:
    """The mistake of a number of hashes that does not divide the width."""
    return [f"model.embedder.hashes: {hashes} does not divide model.width, {width}"] if width % hashes else []
