"""95% confidence intervals of a mean (Student's t), of a mean over windows, and of any statistic (bootstrap)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class MeanInterval:
    """A mean over `count` values and the half width of its 95% interval.

    `half` is None for fewer than two values.
    """

    mean: float
    half: float | None
    count: int

    @property
    def low(self) -> float:
        return math.nan if self.half is None else self.mean - self.half

    @property
    def high(self) -> float:
        return math.nan if self.half is None else self.mean + self.half


def mean_interval(values: Sequence[float]) -> MeanInterval | None:
    """Return the mean of independent values and its interval (Student's t); None without values."""
    # The extra `model` lacks SciPy, and evaluates without this function.
    from scipy.stats import t as student_t

    if not values:
        return None
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return MeanInterval(mean, None, 1)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return MeanInterval(mean, float(student_t.ppf(0.975, count - 1)) * error, count)


def mean_over_windows(values_N: np.ndarray, windows_N: np.ndarray) -> MeanInterval:
    """Return the mean of `values_N` (float64 [N]) and its interval over windows; nan without values.

    Values of one window, `windows_N`, may depend on each other. The error comes from the windows' deviations
    from the mean, the linearised ratio of survey sampling (Cochran 1977, equation 6.9).
    """
    if not len(values_N):
        return MeanInterval(math.nan, None, 0)
    _, window_N = np.unique(windows_N, return_inverse=True)
    sizes, sums = np.bincount(window_N), np.bincount(window_N, weights=values_N)
    mean, count = sums.sum() / sizes.sum(), len(sizes)
    if count == 1:
        return MeanInterval(float(mean), None, 1)
    error = np.sqrt(count / (count - 1) * ((sums - mean * sizes) ** 2).sum()) / sizes.sum()
    return MeanInterval(float(mean), float(_NORMAL_95 * error), count)


def bootstrap_interval(replicates: np.ndarray) -> np.ndarray:
    """Return both ends [2, ...] of the percentile interval of a statistic from its replicates, [R, ...]."""
    return np.percentile(replicates, (2.5, 97.5), axis=0)


def none_if_nan(value: float) -> float | None:
    """Return None for NaN, which JSON lacks."""
    return None if math.isnan(value) else value
