"""MinHash of a text: 256 numbers, of which as many are equal in two texts as their sets of shingles overlap.

A shingle is a run of characters, after case folding and with runs of white space as one space. All of them are hashed
once; the highest bits of a hash say for which of the 256 numbers it stands, and the smallest hash of each wins (one
permutation hashing: Li, Owen & Zhang, 2012, https://arxiv.org/abs/1208.1259). A text too short to fill all numbers
borrows the others from those that are filled, at places that depend on nothing but which are filled (densification:
Shrivastava, 2017, https://arxiv.org/abs/1703.04664). So the cost is one hash a character, whatever the numbers.
`benchmarks/preprocess/near_duplicates.py` measures it beside datasketch.
"""

from __future__ import annotations

import functools

import numpy as np

from tokenfree.preprocess.text.characters import codepoints_of

NUM_HASHES = 256
_BITS = 8  # of the hash that choose among them
_PROBES = 48  # places where an empty number looks before it takes the first that is filled
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_CHUNK = 1 << 20  # shingles at once, for memory
_EMPTY = np.uint64(2**64 - 1)


def sketch(text: str, shingle_characters: int) -> np.ndarray:
    """The sketch of a text, uint16 [256]; a text without as many characters as a shingle has is one shingle."""
    codepoints = codepoints_of(" ".join(text.casefold().split()))
    length = min(shingle_characters, max(len(codepoints), 1))
    smallest = np.full(NUM_HASHES, _EMPTY, np.uint64)
    for start in range(0, max(len(codepoints) - length + 1, 1), _CHUNK):
        hashes = _shingle_hashes(codepoints[start : start + _CHUNK + length - 1], length)
        hashes.sort()
        numbers = (hashes >> np.uint64(64 - _BITS)).astype(np.intp)
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        smallest[numbers[first]] = np.minimum(smallest[numbers[first]], hashes[first])
    return _filled(smallest)


def similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The estimated Jaccard similarity of sketches, uint16 [..., 256]: the share of numbers that are equal, [...]."""
    return (first == second).mean(axis=-1)


def band_hashes(sketches: np.ndarray, rows: int) -> np.ndarray:
    """One number for each `rows` neighbours of each sketch, uint16 [texts, 256] to uint64 [texts, 256 // rows]."""
    bands = np.ascontiguousarray(sketches).reshape(len(sketches), -1, rows).astype(np.uint64)
    hashes = np.zeros(bands.shape[:2], np.uint64)
    for row in range(rows):
        hashes = _mixed(hashes * np.uint64(_MULTIPLIER) + bands[:, :, row] + np.uint64(1))
    return hashes


def _shingle_hashes(codepoints: np.ndarray, length: int) -> np.ndarray:
    """A hash of each run of `length` codepoints, uint64.

    The runs' polynomials are differences of one cumulative sum, so they cost the same whatever their length.
    """
    if not len(codepoints):
        return np.zeros(1, np.uint64)
    powers, inverses = _powers(len(codepoints))
    sums = np.empty(len(codepoints) + 1, np.uint64)
    sums[0] = 0
    np.cumsum(_mixed(codepoints.astype(np.uint64)) * powers, out=sums[1:])
    return _mixed((sums[length:] - sums[:-length]) * inverses[: len(sums) - length])


def _powers(length: int) -> tuple[np.ndarray, np.ndarray]:
    powers, inverses = _tables(1 << max(12, (length - 1).bit_length()))
    return powers[:length], inverses[:length]


@functools.lru_cache(maxsize=2)
def _tables(length: int) -> tuple[np.ndarray, np.ndarray]:
    """The first powers of the multiplier and of its inverse modulo 2**64."""
    tables = []
    for base in (_MULTIPLIER, pow(_MULTIPLIER, -1, 2**64)):
        factors = np.full(length, base, np.uint64)
        factors[0] = 1
        tables.append(np.cumprod(factors))
    return tables[0], tables[1]


def _mixed(values: np.ndarray) -> np.ndarray:
    """Each value spread over 64 bits, one to one (the finish of SplitMix64, https://prng.di.unimi.it/splitmix64.c)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _filled(smallest: np.ndarray) -> np.ndarray:
    values = smallest.astype(np.uint16)  # the lowest bits: the highest are small where the smallest of many won
    empty = smallest == _EMPTY
    left = np.flatnonzero(empty)
    for probes in _places() if len(left) else ():
        found = ~empty[probes[left]]
        values[left[found]] = values[probes[left[found]]]
        left = left[~found]
    values[left] = values[np.argmin(empty)]
    return values


@functools.cache
def _places() -> np.ndarray:
    """Where each number looks for another in its place, intp [probes, 256]."""
    seeds = np.arange(1, _PROBES * NUM_HASHES + 1, dtype=np.uint64) * np.uint64(_MULTIPLIER)
    return (_mixed(seeds) >> np.uint64(64 - _BITS)).astype(np.intp).reshape(_PROBES, NUM_HASHES)
