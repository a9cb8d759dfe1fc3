"""What schedulers share: at which reports they decide, and against whom.

What they are asked is in `train/sweep/control/slots.py`.
"""

import itertools
from collections.abc import Sequence

from tokenfree.train.sweep.control.history import History, TrialState


def reached(trial: TrialState, report_numbers: Sequence[int]) -> int | None:
    """The largest of these numbers that the trial came to with its last report; None where that passed none."""
    before = trial.reports[-2]["report"] if len(trial.reports) > 1 else 0
    return max((number for number in report_numbers if before < number <= trial.report_number), default=None)


def earlier(history: History, trial: TrialState) -> list[TrialState]:
    """The trials that were proposed before `trial`.

    Who reports first is up to the clock, and another after a kill; who was proposed first is not.
    """
    return list(itertools.takewhile(lambda other: other.name != trial.name, history.trials.values()))


def is_coming(trial: TrialState, report_number: int) -> bool:
    """Whether the trial may still make a report of this number."""
    return trial.report_number < report_number and not trial.ended


def rungs(first: int, factor: int, last: int) -> list[int]:
    """first, first * factor, ... below `last`."""
    numbers = []
    while first < last:
        numbers.append(first)
        first *= factor
    return numbers
