"""Means, differences and their 95% intervals over seeds, and the step at which a curve leaves a level."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

COVERAGE = 0.95
LEFT = 0.1  # nats under the level: what counts as having left it


class Interval(NamedTuple):
    """An estimate and the ends of its 95% interval."""

    estimate: float
    low: float
    high: float


def difference(better: Sequence[float], worse: Sequence[float]) -> Interval | None:
    """Mean of `worse` less mean of `better`, with Welch's t interval; None with fewer than two seeds on a side.

    Welch's takes the two sides for independent. They are not quite: a seed has the same order of the data on both. What
    they share takes from the scatter of the difference, so that the interval is rather too wide than too narrow. The
    paired interval would have two degrees of freedom with three seeds, and cost more than it gains.
    """
    if min(len(better), len(worse)) < 2:
        return None
    estimate = statistics.fmean(worse) - statistics.fmean(better)
    shares = [(statistics.variance(values) / len(values), len(values) - 1) for values in (better, worse)]
    variance = sum(share for share, _ in shares)
    if variance == 0:
        return Interval(estimate, estimate, estimate)
    degrees = variance**2 / sum(share**2 / own for share, own in shares)
    half = t_quantile(degrees) * math.sqrt(variance)
    return Interval(estimate, estimate - half, estimate + half)


@functools.cache
def t_quantile(degrees: float, coverage: float = COVERAGE) -> float:
    """How many standard errors to either side hold `coverage` of Student's distribution, by bisection.

    Args:
        degrees: of freedom, at least 1, not necessarily whole.
    """
    low, high = 0.0, 1.0
    while _within(high, degrees) < coverage:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < coverage else (low, middle)
    return (low + high) / 2


def _within(t: float, degrees: float) -> float:
    """The share of Student's distribution between -t and t, by Simpson's rule over the angle atan(x / sqrt(degrees)).

    In the angle the density is proportional to cos^(degrees - 1), which is smooth however long the tails are.
    """
    angles, step = np.linspace(0, math.atan(t / math.sqrt(degrees)), 401, retstep=True)
    values = np.cos(angles) ** (degrees - 1)
    weights = np.array([1, *([4, 2] * 200)[:-1], 1])
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
    return float(2 * scale * step / 3 * (weights * values).sum())


def left_plateau(curve: Sequence[tuple[int, float]], level: float, by: float = LEFT) -> int | None:
    """The step of the first held-out loss of `curve` from which on all are at least `by` nats under `level`.

    None: the last one is not. A curve that dips under the level and comes back has not left it at the dip.

    Args:
        curve: (step, held-out loss), in order.
        level: the loss of the strongest guess that reads no context, over the same targets.
    """
    left = None
    for step, loss in reversed(curve):
        if not loss <= level - by:
            break
        left = step
    return left
