"""Intervals over seeds, the step at which a curve leaves a level, and the verdicts on claims."""

import math

import pytest

from benchmarks.learning.claims import AGREES, DISAGREES, UNTOLD, verdict
from benchmarks.learning.intervals import Interval, difference, left_plateau


def test_difference_is_worse_less_better_with_welchs_interval() -> None:
    better, worse = [4.0, 4.1, 4.2], [4.5, 4.7, 4.9]
    found = difference(better, worse)
    assert found is not None
    shares = (0.01 / 3, 0.04 / 3)  # variances 0.01 and 0.04 of three seeds each
    assert 2 < sum(shares) ** 2 / (shares[0] ** 2 / 2 + shares[1] ** 2 / 2) < 3  # degrees of freedom, rounded down
    half = 4.302653 * math.sqrt(sum(shares))
    assert found == pytest.approx((0.6, 0.6 - half, 0.6 + half))


def test_sides_that_scatter_alike_have_pooled_degrees_of_freedom() -> None:
    found = difference([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert found is not None
    assert found.high == pytest.approx(2.7764 * math.sqrt(2 / 3), abs=1e-3)


def test_no_scatter_is_no_width_and_one_seed_is_no_interval() -> None:
    assert difference([4.0, 4.0], [5.0, 5.0]) == Interval(1.0, 1.0, 1.0)
    assert difference([4.0], [5.0, 5.1, 5.2]) is None


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(0.01, 0.2, AGREES), (-0.2, -0.01, DISAGREES), (-0.01, 0.2, UNTOLD), (0.0, 0.2, UNTOLD), (-0.2, 0.0, UNTOLD)],
)
def test_a_direction_needs_an_interval_that_excludes_0(low: float, high: float, told: str) -> None:
    assert verdict(Interval((low + high) / 2, low, high), 3) == told


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (-0.04, 0.04, AGREES),
        (0.01, 0.04, AGREES),
        (0.06, 0.2, DISAGREES),
        (-0.2, -0.06, DISAGREES),
        (0.01, 0.2, UNTOLD),
        (-0.1, 0.1, UNTOLD),
    ],
)
def test_no_difference_needs_an_interval_within_the_bound(low: float, high: float, told: str) -> None:
    assert verdict(Interval((low + high) / 2, low, high), 3, within=0.05) == told


def test_fewer_than_three_seeds_tell_nothing() -> None:
    assert verdict(Interval(0.5, 0.4, 0.6), 2) == UNTOLD
    assert verdict(Interval(0.0, -0.01, 0.01), 2, within=0.05) == UNTOLD
    assert verdict(None, 3) == UNTOLD
    assert verdict(Interval(math.nan, math.nan, math.nan), 3) == UNTOLD


def test_the_plateau_is_left_where_all_that_follows_lies_under_it() -> None:
    curve = [(100, 6.2), (200, 5.60), (300, 5.45), (400, 5.58), (500, 5.45), (600, 5.0)]
    assert left_plateau(curve, level=5.6) == 500  # the dip at 300 came back


def test_a_plateau_that_was_not_left() -> None:
    assert left_plateau([(100, 6.2), (200, 5.55)], level=5.6) is None  # under it, but not by enough
    assert left_plateau([(100, 5.0), (200, math.nan)], level=5.6) is None
    assert left_plateau([], level=5.6) is None
