"""Measure the CPU seconds of several functions in turn, so that other load on the machine affects all equally."""

import time
from collections.abc import Callable, Mapping
from typing import Any

Seconds = dict[str, list[float]]


def in_turn(runs: Mapping[str, Callable[[], Any]], rounds: int, *, warm_up: int = 1) -> Seconds:
    """Return the CPU seconds (user and system) of each run in each of `rounds` rounds, after `warm_up` extra ones."""
    seconds: Seconds = {name: [] for name in runs}
    for number in range(-warm_up, rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if number >= 0:
                seconds[name].append(time.process_time() - start)
    return seconds


def median(values: list[float]) -> float:
    """Return the middle value, or the upper of the middle two."""
    return sorted(values)[len(values) // 2]


def quotient(seconds: Seconds, name: str, base: str) -> float:
    """Return the median over the rounds of the time of run `name` divided by that of `base`."""
    return median([one / other for one, other in zip(seconds[name], seconds[base], strict=True)])
