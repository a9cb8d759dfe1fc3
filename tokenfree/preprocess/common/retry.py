"""Another attempt, after a growing pause, at what fails now and then: stores, servers, networks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def retry(
    act: Callable[[], T],
    *,
    again: Callable[[Exception], bool],
    pause: float,
    longest_pause: float = math.inf,
    attempts: int | None = None,
    seconds: float = math.inf,
    shortest_pause: Callable[[Exception], float] = lambda error: 0.0,
    progressed: Callable[[], bool] = lambda: False,
    notice: Callable[[Exception, float], None] = lambda error, wait: None,
) -> T:
    """What `act` returns, once an attempt succeeds; the error of the last attempt where none does.

    Args:
        act: one attempt.
        again: whether an error may pass; another one is raised at once.
        pause: seconds before the second attempt; twice as many before each one after it.
        longest_pause: seconds beyond which the pauses do not grow.
        attempts: in a row that may fail; None for any number.
        seconds: no attempt begins later than so long after the first one.
        shortest_pause: seconds that the error asks for, which may be more than the longest pause.
        progressed: whether the attempt that failed got further all the same; then failures are counted from one again.
        notice: told of each error and of the seconds until the next attempt.
    """
    until, failures = time.monotonic() + seconds, 0
    while True:
        try:
            return act()
        except Exception as error:
            if not again(error):
                raise
            failures = 1 if progressed() else failures + 1
            wait = max(shortest_pause(error), min(pause * 2 ** (failures - 1), longest_pause))
            if failures == attempts or time.monotonic() + wait > until:
                raise
            notice(error, wait)
            time.sleep(wait)
