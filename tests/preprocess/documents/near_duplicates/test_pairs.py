"""Candidates of a band, by brute force too; and which document of a pair stays."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.preprocess.documents.near_duplicates import (
    Pair,
    band_rows,
    candidate_probability,
    candidates,
    select_dropped,
)

DOCUMENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 4)), max_size=12)


@given(DOCUMENTS)
def test_candidates_are_of_one_language_and_value_and_join_all_of_these(
    documents: list[tuple[int, int, int]],
) -> None:
    languages, keys, values = (np.array([row[n] for row in documents], np.int64) for n in range(3))
    halves = np.stack([keys // 2, keys % 2], axis=1).astype(np.uint64)
    pairs = candidates(languages, halves, values.astype(np.uint64)).tolist()
    told = {(documents[one], documents[other]) for one, other in pairs}
    assert all(one[0] == other[0] and one[2] == other[2] and one[1] < other[1] for one, other in told)
    assert len(pairs) == len(told) <= 2 * len(documents)
    for one, other in combinations(sorted(set(documents), key=lambda row: (row[0], row[2], row[1])), 2):
        if one[0] == other[0] and one[2] == other[2]:
            bucket = sorted(
                {row for row in documents if row[0] == one[0] and row[2] == one[2]}, key=lambda row: row[1]
            )
            near = one == bucket[0] or bucket.index(other) - bucket.index(one) == 1
            assert ((one, other) in told) is near


def pair(lower: bytes, upper: bytes, similarity: float = 0.9, language: str = "en") -> Pair:
    return Pair(language, lower, upper, similarity)


@pytest.mark.parametrize(
    ("pairs", "gone"),
    [
        ([], []),
        ([pair(b"a", b"b")], [(b"a", b"b")]),
        ([pair(b"b", b"c"), pair(b"a", b"b")], [(b"a", b"b")]),  # c is near b alone, which does not stay
        ([pair(b"b", b"c"), pair(b"a", b"b"), pair(b"a", b"c", 0.8)], [(b"a", b"b"), (b"a", b"c")]),
        ([pair(b"a", b"c", 0.8), pair(b"b", b"c")], [(b"b", b"c")]),  # the most similar is the reason
        ([pair(b"b", b"c"), pair(b"a", b"c")], [(b"a", b"c")]),
        ([pair(b"a", b"b"), pair(b"b", b"c", language="uk")], [(b"a", b"b"), (b"b", b"c")]),
    ],
)
def test_which_document_goes(pairs: list[Pair], gone: list[tuple[bytes, bytes]]) -> None:
    assert [(one.lower, one.upper) for one in select_dropped(pairs)] == gone
    assert select_dropped(pairs) == select_dropped(pairs[::-1])


@pytest.mark.parametrize(
    ("similarity", "rows"), [(0.5, 4), (0.7, 4), (0.8, 8), (0.9, 8), (0.95, 16), (1.0, 16)]
)
def test_bands_are_as_wide_as_they_may_be(similarity: float, rows: int) -> None:
    assert band_rows(similarity) == rows
    assert candidate_probability(similarity, rows) > 0.98
