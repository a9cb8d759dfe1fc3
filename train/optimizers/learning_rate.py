"""The learning rate of each step."""

from __future__ import annotations

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup: float) -> float:
    """The rate of the update numbered `step` (from 0): linear up to `peak` in a share `warmup` of `steps`, then to 0.

    The rate would reach 0 at the update numbered `steps`, which is the first that is not done.
    """
    rising = math.ceil(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    return peak * (steps - step) / (steps - rising)
