"""Hashed features for linear models over n-grams: of words and their neighbours, and of whole texts.

All functions are vectorised over a batch. A feature is a hash below 2^62; -1 is no feature.
N words, F features
"""

import functools
from collections.abc import Sequence

import numpy as np

from tokenfree.preprocess.text.characters import (
    DIGIT,
    LOWER,
    SPACE,
    UPPER,
    WORD_PART,
    classes_of,
    codepoints_of,
)

NO_FEATURE = -1
MAX_AFFIX = 5  # characters
NEIGHBOURS = (-2, -1, 1, 2)
MAX_TRIGRAMS = 32  # of a word; those of longer words beyond their beginning are left out
_BEGIN, _END = "\2", "\3"
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64))
_MIX = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)
_BEYOND = np.uint64(1)  # in place of the hash of a neighbour that the sentence does not have


class SubstringHashes:
    """Hashes of all substrings of `symbols`, each in constant time: a polynomial in `_MULTIPLIER` modulo 2^64.

    The hash of the substring from a to b is the sum of (x_k + 1) M^(b - k), so it does not depend on its place.
    """

    def __init__(self, symbols: np.ndarray) -> None:
        size = len(symbols) + 1
        self._powers = _powers(_MULTIPLIER, size)
        terms = (symbols.astype(np.uint64) + np.uint64(1)) * _powers(_INVERSE, size)[:-1]
        self._sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])

    def __call__(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        return (self._sums[ends] - self._sums[starts]) * self._powers[ends]


def word_features(sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the features of all words, int64 [N, F], as linear taggers of names use them.

    These are, of a word, itself, its lower case, its shape, its first and last 1 to 5 letters and its trigrams;
    of the two words on each side, their lower case, shape and last three letters.
    """
    words = [word for sentence in sentences for word in sentence]
    if not words:
        return np.zeros((0, 1), dtype=np.int64)
    codepoints = codepoints_of("".join(f"{_BEGIN}{word}{_END}" for word in words)).astype(np.int64)
    ends = np.cumsum([len(word) + 2 for word in words])
    starts = np.concatenate([[0], ends[:-1]])
    exact, lower = SubstringHashes(codepoints), SubstringHashes(_lower(codepoints))
    whole, shape = lower(starts, ends), _shapes(codepoints, starts, ends)
    first, last = starts + 1, ends - 1
    columns = [np.zeros(len(words), dtype=np.uint64), whole, exact(starts, ends), shape]
    for size in range(1, MAX_AFFIX + 1):
        columns += [lower(first, np.minimum(first + size, last)), lower(np.maximum(last - size, first), last)]
    suffix = lower(np.maximum(last - 3, first), last)
    sentence = np.repeat(np.arange(len(sentences)), [len(words) for words in sentences])
    for distance in NEIGHBOURS:
        place = np.arange(len(words)) + distance
        inside = (place >= 0) & (place < len(words))
        place = place.clip(0, len(words) - 1)
        inside &= sentence[place] == sentence
        columns += [np.where(inside, hashes[place], _BEYOND) for hashes in (whole, shape, suffix)]
    features = [_mixed(column, number) for number, column in enumerate(columns)]
    begins = starts[:, None] + np.arange(min(MAX_TRIGRAMS, int((ends - starts).max()) - 2))
    inside = begins + 3 <= ends[:, None]
    begins = np.where(inside, begins, starts[:, None])
    trigrams = _mixed(lower(begins, np.minimum(begins + 3, ends[:, None])), len(columns))
    return np.concatenate([np.stack(features, axis=1), np.where(inside, trigrams, NO_FEATURE)], axis=1)


def _shapes(codepoints: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return hashes of the words' shapes: the classes of letters and digits, equal neighbours once."""
    classes = classes_of(codepoints)
    kinds = np.where(np.isin(classes, (UPPER, LOWER, DIGIT, WORD_PART)), classes, codepoints)
    changes = np.append(True, kinds[1:] != kinds[:-1])
    changes[starts] = True
    places = np.concatenate([[0], np.cumsum(changes)])
    return SubstringHashes(kinds[changes])(places[starts], places[ends])


def _mixed(hashes: np.ndarray, kind: int) -> np.ndarray:
    """Return well mixed hashes for one kind of feature, int64 below 2^62."""
    hashes = hashes + np.uint64((kind + 1) * int(_MULTIPLIER) % 2**64)
    for _ in range(2):
        hashes = (hashes ^ (hashes >> _SHIFT)) * _MIX
    return (hashes >> np.uint64(2)).astype(np.int64)


def _powers(base: np.uint64, size: int) -> np.ndarray:
    powers = np.full(size, base, dtype=np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def _lower(codepoints: np.ndarray) -> np.ndarray:
    table = _lower_table()
    return np.where(codepoints < len(table), table[np.minimum(codepoints, len(table) - 1)], codepoints)


@functools.cache
def _lower_table() -> np.ndarray:
    """Return the lower case of each codepoint of the first two planes that has one of a single character."""
    lowered = map(str.lower, map(chr, range(0x20000)))
    return np.array([ord(new) if len(new) == 1 else old for old, new in enumerate(lowered)], dtype=np.int64)
