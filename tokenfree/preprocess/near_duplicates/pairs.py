"""Which documents are compared (bands), and which of a pair stays.

Documents are candidates where all numbers of a band agree. With b bands of r numbers, a pair of similarity s becomes
one with the chance 1 - (1 - s^r)^b (Leskovec, Rajaraman & Ullman, Mining of Massive Datasets, chapter 3.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.near_duplicates.sketch import NUM_HASHES

ROWS = (16, 8, 4)  # of a band: the more, the fewer candidates
FOUND = 0.99  # chance with which a pair at the bound is to be a candidate


class Pair(NamedTuple):
    """Two documents of one language, told by their keys, the lower one first, and their estimated similarity."""

    language: str
    lower: bytes
    upper: bytes
    similarity: float


def found_share(similarity: float, rows: int) -> float:
    """The chance that a pair of this similarity becomes a candidate."""
    return 1 - (1 - similarity**rows) ** (NUM_HASHES // rows)


def band_rows(min_similarity: float) -> int:
    """The most numbers of a band with which pairs at the bound are found with a chance of `FOUND`; at least 4."""
    return next((rows for rows in ROWS if found_share(min_similarity, rows) >= FOUND), ROWS[-1])


def candidates(languages: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The pairs of documents to compare by one band.

    Of the documents of one language with one value, each is compared with that of the lowest key, and with the one
    before it in the order of keys: a bucket of n documents gives no more than 2n pairs. Equal keys are one document.

    Args:
        languages: a number for the language of each document, [documents].
        keys: the two halves of each key, uint64 [documents, 2].
        values: of the band, uint64 [documents].

    Returns:
        Rows of documents, the one with the lower key first, int64 [pairs, 2].
    """
    order = np.lexsort((keys[:, 1], keys[:, 0], values, languages))
    joined = _joined(languages, values, order)
    again = joined.copy()
    again[1:] &= (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    order = order[~again]
    joined = _joined(languages, values, order)
    here = np.flatnonzero(joined)
    starts = np.maximum.accumulate(np.where(joined, 0, np.arange(len(order))))[here]
    chain = np.stack([order[here - 1], order[here]], axis=1)
    star = np.stack([order[starts], order[here]], axis=1)[starts != here - 1]
    return np.concatenate([chain, star])


def _joined(languages: np.ndarray, values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Whether each document, in `order`, is in the bucket of the one before it."""
    joined = np.zeros(len(order), bool)
    joined[1:] = (values[order[1:]] == values[order[:-1]]) & (languages[order[1:]] == languages[order[:-1]])
    return joined


def chosen(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs by which the upper document goes, one for each that does, by language and key.

    Documents are gone through in the order of their keys. One goes if it is near a document that stays, so there is a
    reason for each that can be looked at, and no chain of small differences joins what is far apart. Of several reasons
    the most similar counts, then that of the lowest key.
    """
    gone: dict[tuple[str, bytes], Pair] = {}
    for pair in sorted(pairs, key=lambda pair: (pair.language, pair.upper, -pair.similarity, pair.lower)):
        if (pair.language, pair.lower) not in gone:
            gone.setdefault((pair.language, pair.upper), pair)
    return list(gone.values())
