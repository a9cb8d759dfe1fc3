"""K-way codepoint hash embedding: no vocabulary, every codepoint has a vector.

B batch, C characters, K hashes, D width
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import problems_of, settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder, CharacterTable, InputConfig, refuse_invalid
from tokenfree.train.model.embedders.hashing import MAX_HASHES, Family, hash_buckets, multipliers


@settings
class Config(InputConfig):
    """K hash functions of the codepoint, each with a table (CANINE, Clark et al., arXiv 2103.06874, section 3.1).

    Attributes:
        hashes: K, 1 to 16; must divide the width of characters.
        buckets: rows of each table, 1 to 2^20.
        family: `official`, the hashes of the released code, by which two codepoints that are a multiple of `buckets`
            apart share everything; `independent`, hashes whose collisions are independent.
    """

    name: Literal["codepoint_hash"] = "codepoint_hash"
    hashes: Annotated[int, Field(ge=1, le=MAX_HASHES)] = 8
    buckets: Annotated[int, Field(ge=1, le=2**20)] = 16384
    family: Family = "official"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(HashTable(self, dimensions.width), dimensions, self)

    def check(self, width: int, length: int | None) -> list[str]:
        of_length = super().check
        return problems_of(lambda: does_not_divide(self.hashes, width), lambda: of_length(width, length))


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
        self.stacked = {"rows.weight": config.hashes}  # see train/optimizers/base.py
        self.register_buffer("multipliers_K", multipliers(config.family, config.hashes), persistent=False)
        self.register_buffer("offsets_K", torch.arange(config.hashes) * config.buckets, persistent=False)

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        """Vectors [B, C, D] of int64 codepoints; IndexError for what is none."""
        buckets_BCK = hash_buckets(codepoints_BC[..., None], self.multipliers_K, self.buckets, self.family)
        rows_BCK = refuse_invalid(buckets_BCK + self.offsets_K, codepoints_BC, self.rows.num_embeddings)
        return self.rows(rows_BCK).flatten(2)


def does_not_divide(hashes: int, width: int) -> list[str]:
    """The problem of a number of hashes that does not divide the width."""
    return [f"model.embedder.hashes: {hashes} does not divide model.width, {width}"] if width % hashes else []
