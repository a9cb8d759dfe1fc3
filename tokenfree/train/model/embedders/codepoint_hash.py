"""K-way codepoint hash embedding, which has a vector for every codepoint without a vocabulary.

K hashes
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Dimensions, embedding
from tokenfree.train.model.embedders.characters import CharacterEmbedder, InputConfig

Family = Literal["official", "independent"]

MAX_CODEPOINT = 0x10FFFF
MAX_HASHES = 16
PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)


def multipliers(family: Family, num_hashes: int) -> Tensor:
    """Return int64 [K]: first primes of the official code, or odd 41-bit numbers of SplitMix64 (Steele et al. 2014)."""
    if family == "official":
        return torch.tensor(PRIMES[:num_hashes], dtype=torch.int64)
    return torch.tensor([_splitmix64(k) >> 23 | 1 for k in range(num_hashes)], dtype=torch.int64)


def hash_buckets(symbols: Tensor, multipliers_K: Tensor, num_buckets: int, family: Family) -> Tensor:
    """Return buckets, int64 [..., K], of symbols [..., 1] under every hash, or of symbols [..., K] under one hash each.

    The official hash (x + 1) * p_k mod B is affine, so codepoints that differ by a multiple of B share every
    bucket. The independent family folds the high bits of a product (below 2^63) into its low bits against
    that.
    """
    product = (symbols + 1) * multipliers_K
    if family == "independent":
        product = product ^ (product >> 29)
    return product % num_buckets


def _splitmix64(index: int) -> int:
    z = (index + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


@settings
class HashConfig(InputConfig):
    """Settings that all hash embedders share.

    Attributes:
        hashes: number K of hash functions; must divide the width of characters.
        buckets: number of rows of each table.
        family: `official`: hashes of the released code, in which codepoints that differ by a multiple of
            `buckets` collide in every table; `independent`: hashes with independent collisions.
    """

    hashes: Annotated[int, Field(ge=1, le=MAX_HASHES)] = 8
    buckets: Annotated[int, Field(ge=1, le=2**20)] = 16384
    family: Family = "official"

    def check(self, width: int, length: int | None) -> list[str]:
        wrong = [f"model.embedder.hashes: {self.hashes} does not divide model.width, {width}"]
        return [*(wrong if width % self.hashes else []), *super().check(width, length)]


class HashTables(nn.Module):
    """Tables of `buckets` rows per order and hash, stored as one.

    A character's vector is the sum over the n-grams of orders 1 to `orders` that start at it. That of an
    n-gram is the concatenation of its K rows.
    """

    multipliers_K: Tensor
    offsets_K: Tensor

    def __init__(self, config: HashConfig, width: int, orders: int = 1) -> None:
        super().__init__()
        self.name = "hash tables" if orders == 1 else "n-gram hash tables"
        self.family: Family = config.family
        self.orders, self.buckets = orders, config.buckets
        self.rows = nn.Embedding(orders * config.hashes * config.buckets, width // config.hashes)
        self.stacked = {"rows.weight": orders * config.hashes}  # see train/optimizers/base.py
        self.register_buffer("multipliers_K", multipliers(config.family, config.hashes), persistent=False)
        self.register_buffer("offsets_K", torch.arange(config.hashes) * config.buckets, persistent=False)

    def forward(self, codepoints_BC: Tensor) -> Tensor:
        """Return vectors [B, C, D] of int64 codepoints. Raises IndexError if a value is not a codepoint."""
        by_order = [
            buckets_BCK + self.offsets_K + order * len(self.offsets_K) * self.buckets
            for order, buckets_BCK in enumerate(self.ngram_buckets(codepoints_BC))
        ]
        # CANINE has no UNK. Rows past the end of the table let the look-up fail for invalid codepoints. An
        # explicit check would synchronize with the device at every step.
        invalid_BC = (codepoints_BC < 0) | (codepoints_BC > MAX_CODEPOINT)
        beyond_BC11 = torch.where(invalid_BC, len(self.rows.weight), 0)[..., None, None]
        # One look-up for all orders, because the gradient of each look-up is as large as all tables.
        vectors = embedding(torch.stack(by_order, dim=2) + beyond_BC11, self.rows.weight)
        return (vectors if self.orders == 1 else vectors.sum(dim=2)).flatten(2)

    def ngram_buckets(self, codepoints_BC: Tensor) -> list[Tensor]:
        """Return for each order the buckets, int64 [B, C, K], of the n-grams that start at each character.

        H'(x_i .. x_j) = H(x_i + H'(x_{i+1} .. x_j)), so that order matters. Characters beyond the end are 0.
        Values are reduced mod B at every step, which does not change the official hash.
        """
        buckets = [self._hashed(codepoints_BC[..., None])]
        beyond_K = self._hashed(codepoints_BC.new_zeros(1))
        for _ in range(1, self.orders):
            inner_BCK = torch.cat([buckets[-1][:, 1:], beyond_K.expand(codepoints_BC.shape[0], 1, -1)], dim=1)
            buckets.append(self._hashed(codepoints_BC[..., None] + inner_BCK))
            beyond_K = self._hashed(beyond_K)
        return buckets

    def _hashed(self, symbols: Tensor) -> Tensor:
        return hash_buckets(symbols, self.multipliers_K, self.buckets, self.family)


@settings
class Config(HashConfig):
    """K hash functions of the codepoint, each with its table (CANINE, Clark et al., arXiv 2103.06874, section 3.1)."""

    name: Literal["codepoint_hash"] = "codepoint_hash"

    def build(self, dimensions: Dimensions) -> CharacterEmbedder:
        return CharacterEmbedder(HashTables(self, dimensions.width), dimensions, self)
