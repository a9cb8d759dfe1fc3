"""Hashes of codepoints and tables of their buckets: CANINE's official family and one with independent collisions.

B batch, C characters, K hashes, D width
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.model.embedders.characters import CharacterTable, InputConfig

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

    The official hash (x + 1) * p_k mod B is affine, so all K buckets of x depend only on (x + 1) mod B. Codepoints that
    differ by a multiple of B share every bucket. The independent family folds the high bits of a product (below 2^63)
    into its low bits, which makes collisions under different k independent.
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
        family: `official`: hashes of the released code, in which codepoints that differ by a multiple of `buckets`
            collide in every table; `independent`: hashes with independent collisions.
    """

    hashes: Annotated[int, Field(ge=1, le=MAX_HASHES)] = 8
    buckets: Annotated[int, Field(ge=1, le=2**20)] = 16384
    family: Family = "official"

    def check(self, width: int, length: int | None) -> list[str]:
        wrong = [f"model.embedder.hashes: {self.hashes} does not divide model.width, {width}"]
        return [*(wrong if width % self.hashes else []), *super().check(width, length)]


class HashTables(CharacterTable):
    """`orders` tables of `buckets` rows per hash, stored as one, so that one look-up returns the concatenation."""

    multipliers_K: Tensor
    offsets_K: Tensor

    def __init__(self, config: HashConfig, width: int, orders: int = 1) -> None:
        super().__init__()
        self.family: Family = config.family
        self.hashes, self.buckets = config.hashes, config.buckets
        self.rows = nn.Embedding(orders * config.hashes * config.buckets, width // config.hashes)
        self.stacked = {"rows.weight": orders * config.hashes}  # see train/optimizers/base.py
        self.register_buffer("multipliers_K", multipliers(config.family, config.hashes), persistent=False)
        self.register_buffer("offsets_K", torch.arange(config.hashes) * config.buckets, persistent=False)

    def hashed(self, symbols: Tensor) -> Tensor:
        """Return the buckets of symbols [..., 1], or [..., K] each under its own hash, int64 [..., K]."""
        return hash_buckets(symbols, self.multipliers_K, self.buckets, self.family)

    def refuse_invalid(self, rows: Tensor, codepoints_BC: Tensor) -> Tensor:
        """Move `rows` [B, C, ...] of invalid codepoints past the end of the table, so that the look-up fails.

        CANINE has no UNK. An explicit check would synchronize with the device at every step.
        """
        invalid_BC = (codepoints_BC < 0) | (codepoints_BC > MAX_CODEPOINT)
        return rows + torch.where(invalid_BC, len(self.rows.weight), 0).reshape(
            *codepoints_BC.shape, *[1] * (rows.dim() - 2)
        )
