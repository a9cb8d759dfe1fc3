"""What schedulers share: at which reports they decide. What they are asked is in `train/sweep/control/slots.py`."""

from collections.abc import Sequence

from tokenfree.train.sweep.control.history import TrialState


def reached(trial: TrialState, report_numbers: Sequence[int]) -> int | None:
    """The largest of these numbers that the trial came to with its last report; None where that passed none."""
    before = trial.reports[-2]["report"] if len(trial.reports) > 1 else 0
    return max((number for number in report_numbers if before < number <= trial.report_number), default=None)


def rungs(first: int, factor: int, last: int) -> list[int]:
    """first, first * factor, ... below `last`."""
    numbers = []
    while first < last:
        numbers.append(first)
        first *= factor
    return numbers
