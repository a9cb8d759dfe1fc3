"""Vocabulary-free n-grams: the sum over the hashed n-grams of orders 1 to N that start at each character.

B batch, C characters, O orders, K hashes, D width
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import CharacterEmbedder
from tokenfree.train.model.embedders.hashing import HashConfig, HashTables


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
        return CharacterEmbedder(NgramTable(self, dimensions.width), dimensions, self)


class NgramTable(HashTables):
    """A table of `buckets` rows per order and hash."""

    name = "n-gram hash tables"

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width, config.orders)
        self.orders = config.orders

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        """Return vectors [B, C, D] of int64 codepoints.

        Raises:
            IndexError: A value is not a codepoint.
        """
        by_order = [
            buckets_BCK + self.offsets_K + order * self.hashes * self.buckets
            for order, buckets_BCK in enumerate(self.ngram_buckets(codepoints_BC))
        ]
        rows_BCOK = self.refuse_invalid(torch.stack(by_order, dim=2), codepoints_BC)
        # One look-up for all orders, because the gradient of each look-up is as large as all tables.
        return self.rows(rows_BCOK).sum(dim=2).flatten(2)

    def ngram_buckets(self, codepoints_BC: Tensor) -> list[Tensor]:
        """Return for each order the buckets, int64 [B, C, K], of the n-grams that start at each character.

        H'(x_i .. x_j) = H(x_i + H'(x_{i+1} .. x_j)). The inner hash is added and hashed again, so that the order of the
        characters matters. Values are reduced mod B at every step, which does not change the official hash. Characters
        beyond the end are 0.
        """
        buckets = [self.hashed(codepoints_BC[..., None])]
        beyond_K = self.hashed(codepoints_BC.new_zeros(1))
        for _ in range(1, self.orders):
            inner_BCK = torch.cat([buckets[-1][:, 1:], beyond_K.expand(codepoints_BC.shape[0], 1, -1)], dim=1)
            buckets.append(self.hashed(codepoints_BC[..., None] + inner_BCK))
            beyond_K = self.hashed(beyond_K)
        return buckets
