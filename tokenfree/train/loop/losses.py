"""Losses that are no number or jump, and the errors that they raise."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Mapping

from tokenfree.core.errors import JobError


class Incident(JobError):
    """A step, counted from 1, that was abandoned because of the loss of its batch.

    The loss is in nats per target.
    """

    kind = ""

    def __init__(self, step: int, batch: int, loss: float, sample_ids: list[int]) -> None:
        super().__init__(step, batch, loss, sample_ids)
        self.step, self.batch, self.loss, self.sample_ids = step, batch, loss, sample_ids


class NotANumber(Incident):
    kind = "not_a_number"

    def __str__(self) -> str:
        return (
            f"the loss or its gradient is not a number at step {self.step}; lower train.learning_rate or raise "
            "train.warmup and start another run, or continue this one with --train.on_nan roll_back"
        )


class Spike(Incident):
    kind = "loss_spike"

    def __str__(self) -> str:
        return (
            f"the loss jumped to {self.loss:.3f} at step {self.step}; lower train.learning_rate and start another run, "
            "or continue this one with --train.on_spike roll_back or go_on"
        )


def checked_validation(step: int, validation: Mapping[str, float]) -> Mapping[str, float]:
    """Return the metrics of a validation. Raises JobError if one is not finite, which JSON requires."""
    if not all(map(math.isfinite, validation.values())):
        raise JobError(
            f"the held-out loss is not a number at step {step}, after losses that were: the last updates were too "
            "large; lower train.learning_rate or raise train.warmup and start another run"
        )
    return validation


class RecentLosses(collections.deque[float]):
    """The losses of the last `window` steps.

    A loss `deviations` standard deviations above their mean is a jump.
    """

    def __init__(self, window: int, deviations: float) -> None:
        super().__init__(maxlen=window)
        self._window, self._deviations = window, deviations

    def jumps(self, loss: float) -> bool:
        """Return True if `loss` is a jump. It never is before the window is full."""
        if len(self) < self._window:
            return False
        mean = math.fsum(self) / len(self)
        return loss > mean + self._deviations * statistics.pstdev(self, mean)
