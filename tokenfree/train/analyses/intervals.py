"""Means over targets with intervals that know that targets of one window belong together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_NORMAL_95 = 1.959964


class Interval(NamedTuple):
    """A mean and the ends of its 95% interval."""

    mean: float
    low: float
    high: float


def mean_over_windows(values_N: np.ndarray, windows_N: np.ndarray) -> Interval:
    """The mean of `values_N` (float64 [N]) with an interval over windows, each of which gives one or more targets.

    The mean is a ratio, of the sum of the values to their number; its error is that of the windows' deviations from it
    (the linearised ratio of survey sampling, Cochran 1977, equation 6.9), so values of one window may depend on each
    other. All nan without values; the ends are nan with a single window.
    """
    if not len(values_N):
        return Interval(*[float("nan")] * 3)
    _, window_N = np.unique(windows_N, return_inverse=True)
    sizes, sums = np.bincount(window_N), np.bincount(window_N, weights=values_N)
    mean = sums.sum() / sizes.sum()
    num_windows = len(sizes)
    if num_windows < 2:
        return Interval(float(mean), float("nan"), float("nan"))
    deviations = sums - mean * sizes
    error = np.sqrt(num_windows / (num_windows - 1) * (deviations**2).sum()) / sizes.sum()
    return Interval(float(mean), float(mean - _NORMAL_95 * error), float(mean + _NORMAL_95 * error))
