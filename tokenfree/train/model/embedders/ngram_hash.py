"""Vocabulary-free n-grams: the sum of the hashed n-grams of orders 1 to N that start at each character.

B batch, C characters, O orders, K hashes, D width
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import problems_of, settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder, CharacterTable, InputConfig, refuse_invalid
from tokenfree.train.model.embedders.codepoint_hash import does_not_divide
from tokenfree.train.model.embedders.hashing import MAX_HASHES, Family, hash_buckets, multipliers


@settings
class Config(InputConfig):
    """Hashed character n-grams (CANINE, Clark et al., arXiv 2103.06874, section 3.1, vocabulary-free n-grams).

    Attributes:
        orders: N, the longest n-grams, 1 to 16 characters.
        hashes: K, 1 to 16; must divide the width of characters.
        buckets: rows of the table of each order and hash, 1 to 2^20.
        family: `official`, the hashes of the released code; `independent`, hashes whose collisions are independent.
    """

    name: Literal["ngram_hash"] = "ngram_hash"
    orders: Annotated[int, Field(ge=1, le=16)] = 4
    hashes: Annotated[int, Field(ge=1, le=MAX_HASHES)] = 8
    buckets: Annotated[int, Field(ge=1, le=2**20)] = 15000
    family: Family = "official"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(NgramTable(self, dimensions.width), dimensions, self)

    def check(self, width: int, length: int | None) -> list[str]:
        of_length = super().check
        return problems_of(lambda: does_not_divide(self.hashes, width), lambda: of_length(width, length))


class NgramTable(CharacterTable):
    """A table of `buckets` rows for each order and hash."""

    name = "n-gram hash tables"
    family: Family
    multipliers_K: Tensor
    offsets_K: Tensor

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.orders, self.hashes, self.buckets, self.family = (
            config.orders,
            config.hashes,
            config.buckets,
            config.family,
        )
        self.rows = nn.Embedding(config.orders * config.hashes * config.buckets, width // config.hashes)
        self.stacked = {"rows.weight": config.orders * config.hashes}  # see train/optimizers/base.py
        self.register_buffer("multipliers_K", multipliers(config.family, config.hashes), persistent=False)
        self.register_buffer("offsets_K", torch.arange(config.hashes) * config.buckets, persistent=False)

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        """Vectors [B, C, D] of int64 codepoints; IndexError for what is none."""
        by_order = [
            buckets_BCK + self.offsets_K + order * self.hashes * self.buckets
            for order, buckets_BCK in enumerate(self.ngram_buckets(codepoints_BC))
        ]
        rows_BCOK = refuse_invalid(torch.stack(by_order, dim=2), codepoints_BC, self.rows.num_embeddings)
        # One look-up for all orders: each would have a gradient as large as all tables.
        return self.rows(rows_BCOK).sum(dim=2).flatten(2)

    def ngram_buckets(self, codepoints_BC: Tensor) -> list[Tensor]:
        """For each order the buckets, int64 [B, C, K], of the n-grams that start at each character.

        H'(x_i .. x_j) = H(x_i + H'(x_{i+1} .. x_j)): the inner hash is added and hashed again; without that, the order
        of the characters would not count. Reduced mod B at every step, which for the official hash changes nothing.
        Characters beyond the end are 0.
        """
        buckets = [self._hash(codepoints_BC[..., None])]
        beyond_K = self._hash(codepoints_BC.new_zeros(1))
        for _ in range(1, self.orders):
            inner_BCK = torch.cat([buckets[-1][:, 1:], beyond_K.expand(codepoints_BC.shape[0], 1, -1)], dim=1)
            buckets.append(self._hash(codepoints_BC[..., None] + inner_BCK))
            beyond_K = self._hash(beyond_K)
        return buckets

    def _hash(self, symbols: Tensor) -> Tensor:
        return hash_buckets(symbols, self.multipliers_K, self.buckets, self.family)
