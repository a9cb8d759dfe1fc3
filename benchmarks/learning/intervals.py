"""Means, differences and their 95% intervals over seeds, and the step at which a curve leaves a level."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from tokenfree.train.sweep.results.compare import t_quantile

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
    paired interval would have two degrees of freedom with three seeds, and cost more than it gains. Degrees of freedom
    are rounded down, for the same side of caution.
    """
    if min(len(better), len(worse)) < 2:
        return None
    estimate = statistics.fmean(worse) - statistics.fmean(better)
    shares = [(statistics.variance(values) / len(values), len(values) - 1) for values in (better, worse)]
    variance = sum(share for share, _ in shares)
    if variance == 0:
        return Interval(estimate, estimate, estimate)
    degrees = variance**2 / sum(share**2 / own for share, own in shares)
    half = t_quantile(COVERAGE, max(math.floor(degrees + 1e-9), 1)) * math.sqrt(variance)
    return Interval(estimate, estimate - half, estimate + half)


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
