"""Intervals over windows: they know that targets of one window are alike, and hold the truth as often as they say."""

import math

import numpy as np
import pytest

from tokenfree.train.intervals import mean_over_windows


def test_the_mean_is_over_targets_and_the_error_over_windows() -> None:
    values, windows = np.array([1.0, 2.0, 6.0, 3.0]), np.array([7, 7, 7, 2])
    interval = mean_over_windows(values, windows)
    assert interval.mean == 3
    # Windows of 3 targets that sum to 9 and of 1 that sums to 3: both are what the mean says, whatever is in
    # them.
    assert (interval.low, interval.high) == (3, 3)
    other = mean_over_windows(np.array([1.0, 3.0, 5.0, 5.0]), np.array([0, 0, 1, 1]))
    # The deviations of the windows are -3 and 3: sqrt(2 / 1 * 18) / 4.
    assert other.high - other.mean == pytest.approx(1.959964 * 1.5)
    assert other.mean - other.low == pytest.approx(1.959964 * 1.5)


def test_they_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    held, naive = 0, 0
    for _ in range(400):
        sizes = rng.integers(1, 12, size=60)
        windows = np.repeat(np.arange(60), sizes)
        values = 0.7 + rng.normal(size=60)[windows] + rng.normal(size=len(windows))
        interval = mean_over_windows(values, windows)
        held += interval.low <= 0.7 <= interval.high
        naive += abs(values.mean() - 0.7) <= 1.96 * values.std() / math.sqrt(len(values))
    assert 0.91 < held / 400 < 0.98
    assert naive / 400 < 0.8  # targets taken as if each stood alone


def test_too_little_for_an_interval() -> None:
    assert np.isnan(mean_over_windows(np.zeros(0), np.zeros(0, dtype=np.int64)).mean)
    alone = mean_over_windows(np.array([1.0, 2.0]), np.array([5, 5]))
    assert alone.mean == 1.5
    assert np.isnan([alone.low, alone.high]).all()
