"""Hashes from codepoints to buckets: the official family of CANINE, and one whose collisions are independent.

K hashes
"""

from typing import Literal

import torch
from torch import Tensor

Family = Literal["official", "independent"]

MAX_CODEPOINT = 0x10FFFF
MAX_HASHES = 16
PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)


def multipliers(family: Family, num_hashes: int) -> Tensor:
    """int64 [K]: the first primes of the official code, or odd 41-bit numbers from SplitMix64 (Steele et al. 2014)."""
    if family == "official":
        return torch.tensor(PRIMES[:num_hashes], dtype=torch.int64)
    return torch.tensor([_splitmix64(k) >> 23 | 1 for k in range(num_hashes)], dtype=torch.int64)


def hash_buckets(symbols: Tensor, multipliers_K: Tensor, num_buckets: int, family: Family) -> Tensor:
    """The bucket of symbols [..., 1] under every hash, or of symbols [..., K] each under its own, int64 [..., K].

    The official hash (x + 1) * p_k mod B is affine, so all K buckets of x depend on (x + 1) mod B alone: codepoints
    that differ by a multiple of B share every bucket. The independent family folds the high bits of a product of less
    than 2^63 into the low ones, which makes collisions under different k independent.
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
