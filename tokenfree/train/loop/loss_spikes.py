"""Losses that are no numbers and losses that jump: noticed before the step is done, with the samples that did it.

`train.on_nan` and `train.on_spike` say what follows. `roll_back` goes back to the newest checkpoint and leaves out the
batch on the way. Where training comes back to the same checkpoint once more, the batch was not to blame, and all since
that checkpoint are left out, as in PaLM (Chowdhery et al., arXiv 2204.02311, section 5.1).

Each incident is a file, `<run>/incidents/batch_00000041.json`: kind, step, batch, loss, sample_ids, checkpoint (the
step that training went back to, else null) and left_out (the numbers of the batches not to be used again).
"""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Iterable, Mapping

from tokenfree.preprocess.common.errors import JobError


class Incident(JobError):
    """A step that was not done because of its loss.

    Args:
        step: its number, counted from 1.
        batch: the number of its batch in the order of the data.
        loss: of the batch, nats per target.
        sample_ids: the samples to look at.
    """

    kind = ""

    def __init__(self, step: int, batch: int, loss: float, sample_ids: list[int]) -> None:
        super().__init__(step, batch, loss, sample_ids)
        self.step, self.batch, self.loss, self.sample_ids = step, batch, loss, sample_ids


class NotANumber(Incident):
    """The loss or the gradient is not finite. `sample_ids` are those of the micro batches where it showed."""

    kind = "not_a_number"

    def __str__(self) -> str:
        return (
            f"the loss or its gradient is not a number at step {self.step}; lower train.learning_rate or raise "
            "train.warmup and start another run, or go on with this one with --train.on_nan roll_back"
        )


class Spike(Incident):
    """The loss is far above those before it."""

    kind = "loss_spike"

    def __str__(self) -> str:
        return (
            f"the loss jumped to {self.loss:.3f} at step {self.step}; lower train.learning_rate and start another run, "
            "or go on with this one with --train.on_spike roll_back or go_on"
        )


def checked_validation(step: int, validation: Mapping[str, float]) -> Mapping[str, float]:
    """The metrics of a validation after `step`, all of them numbers: others are of no use, and JSON has none of them.

    Raises:
        JobError: one is none.
    """
    if not all(map(math.isfinite, validation.values())):
        raise JobError(
            f"the held-out loss is not a number at step {step}, after losses that were: the last updates were too "
            "large; lower train.learning_rate or raise train.warmup and start another run"
        )
    return validation


class RecentLosses:
    """The losses of the last steps, against which the next one is judged.

    Args:
        window: how many of them.
        deviations: how many standard deviations above their mean a loss jumps.
    """

    def __init__(self, window: int, deviations: float) -> None:
        self._losses: collections.deque[float] = collections.deque(maxlen=window)
        self._deviations = deviations

    def jumps(self, loss: float) -> bool:
        """Whether `loss` (nats per target) is that far above those before it; never before the window is full."""
        if len(self._losses) < (self._losses.maxlen or 0):
            return False
        mean = math.fsum(self._losses) / len(self._losses)
        return loss > mean + self._deviations * statistics.pstdev(self._losses, mean)

    def add(self, loss: float) -> None:
        """Take in the loss of a step that was done."""
        self._losses.append(loss)

    def state(self) -> list[float]:
        """What a checkpoint holds of it: the losses, the oldest first."""
        return list(self._losses)

    def load(self, state: Iterable[float]) -> None:
        """Go on from what `state` gave."""
        self._losses.clear()
        self._losses.extend(state)
