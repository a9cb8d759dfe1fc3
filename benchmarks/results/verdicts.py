"""The rule for every comparison: the 95% interval of the difference of two means over seeds decides."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import t

from tokenfree.train import intervals

BETTER, WORSE, EQUAL, OPEN = "better", "worse", "equal", "open"
FEW_SEEDS = {1: "open (one seed)", 2: "open (two seeds)"}
VERDICTS = (BETTER, WORSE, EQUAL, OPEN, *FEW_SEEDS.values())
# Differences inside the margin are too small to matter. Half of what concatenation makes in the first runs of
# `claim-base` and `claim-no-concatenation`; half a point of a score or a relative error.
NATS_MARGIN, SCORE_MARGIN = 0.059, 0.005


class Interval(NamedTuple):
    """An estimate and the ends of its 95% interval."""

    estimate: float
    low: float
    high: float


class Comparison(NamedTuple):
    """Verdict on one side against another, the interval of the difference, and the seeds of the side with fewer."""

    verdict: str
    interval: Interval | None
    seeds: int


def compare(
    one: Sequence[float], other: Sequence[float], margin: float, *, other_is_exact: bool = False
) -> Comparison:
    """Compare two sides by values of each seed that are better if higher.

    Args:
        one: Values of the side that the verdict is about.
        other: Values of the other side.
        margin: Differences that are smaller count as none.
        other_is_exact: The other side has no randomness, so its value needs no seeds.
    """
    seeds = len(one) if other_is_exact else min(len(one), len(other))
    interval = difference(one, other, other_is_exact=other_is_exact)
    return Comparison(judge(interval, seeds, margin), interval, seeds)


def judge(interval: Interval | None, seeds: int, margin: float) -> str:
    """Return one of `VERDICTS` for the interval of a difference."""
    if interval is None or seeds in FEW_SEEDS:
        return FEW_SEEDS.get(seeds, OPEN)
    if -margin < interval.low and interval.high < margin:
        return EQUAL
    if interval.low > 0:
        return BETTER
    return WORSE if interval.high < 0 else OPEN


def difference(
    one: Sequence[float], other: Sequence[float], *, other_is_exact: bool = False
) -> Interval | None:
    """Return the mean of `one` minus that of `other`, with Welch's 95% interval.

    Return None if a side with randomness has fewer than two seeds.
    """
    sides = (one,) if other_is_exact else (one, other)
    if min(map(len, sides)) < 2:
        return None
    estimate = statistics.fmean(one) - statistics.fmean(other)
    shares = [(statistics.variance(values) / len(values), len(values) - 1) for values in sides]
    variance = sum(share for share, _ in shares)
    if not variance:
        return Interval(estimate, estimate, estimate)
    degrees = variance**2 / sum(share**2 / freedom for share, freedom in shares)
    half = float(t.ppf(0.975, degrees)) * math.sqrt(variance)
    return Interval(estimate, estimate - half, estimate + half)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean with its 95% interval over seeds. With one seed, the ends are NaN."""
    mean = intervals.mean_interval(values)
    assert mean is not None, "every row has a seed"
    return Interval(mean.mean, mean.low, mean.high)


def counted(verdicts: Sequence[str]) -> str:
    """Return the number of each verdict, such as `2 better, 1 open (one seed)`."""
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts)
