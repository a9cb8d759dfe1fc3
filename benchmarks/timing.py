"""CPU seconds of several things in turn, so that a busy spell of the machine strikes all of them alike."""

import time
from collections.abc import Callable, Mapping
from typing import Any

Seconds = dict[str, list[float]]


def in_turn(runs: Mapping[str, Callable[[], Any]], rounds: int, *, warm_up: int = 1) -> Seconds:
    """CPU seconds (user and system) of each run in each of `rounds` rounds; `warm_up` more before them do not count."""
    seconds: Seconds = {name: [] for name in runs}
    for number in range(-warm_up, rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if number >= 0:
                seconds[name].append(time.process_time() - start)
    return seconds


def median(values: list[float]) -> float:
    """The middle one; of an even number, the upper of the middle two."""
    return sorted(values)[len(values) // 2]


def quotient(seconds: Seconds, name: str, base: str) -> float:
    """How many times as long as `base` the run `name` takes: the median of the rounds' quotients."""
    return median([one / other for one, other in zip(seconds[name], seconds[base], strict=True)])
