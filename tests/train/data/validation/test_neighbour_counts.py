"""Counts of neighbouring subwords against Witten and Bell's estimates written out."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tokenfree.train.batches.base import EDGE, HIDDEN, neighbours_of
from tokenfree.train.data.validation import NeighbourCounts

NUM_SUBWORDS = 4
WINDOWS = [[0, 1, 2, 0, 1, 3], [1, 2, 0], [], [3]]
SIZES = [2, 1, 1, 2]  # characters of each subword


class FakeReader:
    def spread_rows(
        self, columns: Sequence[str], max_rows: int
    ) -> Iterator[tuple[None, Mapping[str, Sequence[np.ndarray]]]]:
        for windows in (WINDOWS[:2], WINDOWS[2:]):
            sizes = [np.array([SIZES[number] for number in window], dtype=np.int64) for window in windows]
            ends = [np.cumsum(size) for size in sizes]
            starts = [end - size for end, size in zip(ends, sizes, strict=True)]
            ids = [np.array(window, dtype=np.int64) for window in windows]
            yield None, dict(zip(columns, (ids, starts, ends), strict=True))


def expected(left: int, right: int, size: int) -> np.ndarray:
    """p(x | l, r, n) by loops over the text."""
    counts = {name: Counter[Any]() for name in ("all", "size", "left", "right", "both")}
    for window in WINDOWS:
        for before, number, after in zip([EDGE, *window], window, [*window[1:], EDGE], strict=False):
            contexts = {"all": (), "size": SIZES[number], "left": (before, SIZES[number]),
                        "right": (after, SIZES[number]), "both": (before, after, SIZES[number])}  # fmt: skip
            for name, context in contexts.items():
                counts[name][context, number] += 1

    def witten_bell(name: str, context: Any, lower: np.ndarray, weight: float = 2) -> np.ndarray:
        seen = np.array([counts[name][context, number] for number in range(NUM_SUBWORDS)], dtype=float)
        if not seen.any():
            return lower
        kinds = weight * (seen > 0).sum()
        return (seen + kinds * lower) / (seen.sum() + kinds)

    text = [counts["all"][(), number] for number in range(NUM_SUBWORDS)]
    frequencies = (np.array(text) + 0.5) / (sum(text) + 0.5 * NUM_SUBWORDS)
    by_size = witten_bell("size", size, frequencies, 1)
    by_left = by_size if left == HIDDEN else witten_bell("left", (left, size), by_size)
    by_right = by_size if right == HIDDEN else witten_bell("right", (right, size), by_size)
    both = by_left * by_right / by_size
    both /= both.sum()
    return both if HIDDEN in (left, right) else witten_bell("both", (left, right, size), both)


@pytest.mark.parametrize(
    ("left", "right", "size"), [(0, 2, 1), (EDGE, 1, 2), (HIDDEN, 3, 1), (2, HIDDEN, 2), (3, 3, 1), (0, 2, 9)]
)
def test_neighbour_counts_are_witten_bell_estimates(left: int, right: int, size: int) -> None:
    reader: Any = FakeReader()
    counts = NeighbourCounts(reader, NUM_SUBWORDS)
    ids = np.arange(NUM_SUBWORDS)
    losses = counts.losses(ids, *(np.full(NUM_SUBWORDS, value) for value in (left, right, size)))
    np.testing.assert_allclose(np.exp(-losses), expected(left, right, size))


def test_neighbours_of_windows_end_at_their_edges() -> None:
    ids, counts = np.array([5, 6, 7, 8]), np.array([2, 0, 1, 1])
    left, right = neighbours_of(ids, counts)
    assert left.tolist() == [EDGE, 5, EDGE, EDGE]
    assert right.tolist() == [6, EDGE, EDGE, EDGE]
