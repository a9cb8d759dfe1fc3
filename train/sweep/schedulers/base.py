"""What every scheduler is: a rule that looks at the history of a sweep and keeps no state of its own.

A sweep that was killed therefore goes on with the rungs, brackets and generations that it had.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from train.sweep.history import History, Record, Verdict

if TYPE_CHECKING:
    from train.sweep.config import SweepRecipe


class Exploit(NamedTuple):
    """A trial is to take over the weights of another one, and go on with these values."""

    trial: str
    donor: str
    values: dict[str, Any]
    place: int  # the number of the report after which it does


class Rule:
    """The base of every scheduler's `Config`."""

    def check(self, sweep: "SweepRecipe") -> Iterable[str]:
        """The mistakes of a sweep with this scheduler, one line each."""
        return []

    def verdict(self, history: History, trial: Record) -> Verdict:
        """Whether `trial`, which has reported and is not at its end, goes on, waits for others, or is stopped."""
        raise NotImplementedError

    def exploits(self, history: History, sweep: "SweepRecipe") -> list[Exploit]:
        """What waiting trials take over from others before they go on."""
        return []


def reached(trial: Record, places: Sequence[int]) -> int | None:
    """The largest of `places` that the trial came to with its last report; None where that passed none."""
    before = trial.reports[-2]["report"] if len(trial.reports) > 1 else 0
    return max((place for place in places if before < place <= trial.place), default=None)


def rungs(first: int, factor: int, last: int) -> list[int]:
    """first, first * factor, ... below `last`."""
    places = []
    while first < last:
        places.append(first)
        first *= factor
    return places
