"""Counter-based random numbers: each is a function of (seed, purpose, sample, counter), without any state.

The mixing function is splitmix64's (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
2014). Different purposes, which are names, give independent numbers for the same sample.
"""

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Rounds of the Feistel network; 3 are pseudorandom (Luby and Rackoff), but small domains need more.
_ROUNDS = 6


def key(seed: int, *purpose: str | int) -> np.uint64:
    name = "\x00".join(map(str, (seed, *purpose)))
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def mix(z: np.ndarray) -> np.ndarray:
    """Apply splitmix64's finaliser, a bijection of uint64, to `z` in place, and return `z`."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def derive(keys: np.ndarray | np.uint64, counters: np.ndarray | int) -> np.ndarray:
    # A copy, and an array: scalars would warn of overflow.
    steps = np.atleast_1d(counters).astype(np.uint64)
    steps += np.uint64(1)
    steps *= _GOLDEN
    return mix(steps + keys)


def bits(seed: int, purpose: str, sample_ids: np.ndarray, count: int) -> np.ndarray:
    """Return `count` random numbers for each of the sample ids (int64 [b]), uint64 [b, count]."""
    return derive(derive(key(seed, purpose), sample_ids)[:, None], np.arange(count)[None, :])


def uniform(seed: int, purpose: str, sample_ids: np.ndarray, count: int) -> np.ndarray:
    """Return `count` random numbers in [0, 1) for each of the sample ids (int64 [b]), float64 [b, count]."""
    return (bits(seed, purpose, sample_ids, count) >> np.uint64(11)) * 2.0**-53


def permute(index: np.ndarray, size: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the image of each `index` under the permutation of range(size) that its key defines, int64 [n].

    A Feistel network over the next even power of two is applied until the result falls inside the range
    (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). It takes constant memory and gives
    random access.
    """
    pending = np.flatnonzero(size > 1)
    # Frexp gives the bit length.
    half = ((np.frexp(size - 1)[1] + 1) // 2).astype(np.uint64)
    value, bound = index.astype(np.uint64), size.astype(np.uint64)
    while len(pending):
        value[pending] = _feistel(value[pending], half[pending], keys[pending])
        pending = pending[value[pending] >= bound[pending]]
    return value.astype(np.int64)


def _feistel(value: np.ndarray, half: np.ndarray, keys: np.ndarray) -> np.ndarray:
    low = (np.uint64(1) << half) - np.uint64(1)
    left, right = value >> half, value & low
    for number in range(_ROUNDS):
        left, right = right, left ^ (derive(keys ^ right, number) & low)
    return left << half | right
