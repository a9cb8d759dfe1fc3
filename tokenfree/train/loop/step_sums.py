"""What the examples of a step add up to: over micro batches, then over workers in one all-reduce, then to a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tokenfree.train.objectives.base import Loss

_SCALARS = 5


class StepSums(NamedTuple):
    """Sums over the examples of a micro batch, of one worker or of the global batch: float64, without gradient.

    A tuple, so that torch's data parallelism and compiler find the tensors in it.
    """

    loss: Tensor  # scalar: of the losses of all targets, nats
    num_targets: Tensor  # scalar
    num_correct: Tensor  # scalar: targets whose right answer had the highest logit
    means: Mapping[str, Tensor]  # by name [2]: the sum and the count of each further mean that the head reports
    num_characters: Tensor  # scalar: of text, special ones and padding left out; 0 in what the model gives
    num_stops: Tensor  # scalar: workers that were asked to stop; 0 in what the model gives

    @classmethod
    def of(cls, loss: Loss, means: Sequence[str]) -> StepSums:
        """The sums of one forward pass, with the means of these names."""
        total, num_targets, num_correct = (_detached(each) for each in (loss.total, loss.num_targets, loss.num_correct))
        pairs = {name: torch.stack([_detached(value) for value in loss.means[name]]) for name in means}
        nothing = torch.zeros_like(total)
        return cls(total, num_targets, num_correct, pairs, nothing, nothing)

    @classmethod
    def zeros(cls, means: Sequence[str], device: torch.device) -> StepSums:
        """Zeros to add to, on `device`."""
        return cls.unpack(torch.zeros(_SCALARS + 2 * len(means), dtype=torch.float64, device=device), means)

    @classmethod
    def unpack(cls, vector: Tensor, means: Sequence[str]) -> StepSums:
        """The sums that `pack` laid into `vector`, with the names of their means."""
        pairs = dict(zip(means, vector[3:-2].unflatten(0, (len(means), 2)), strict=True))
        return cls(vector[0], vector[1], vector[2], pairs, vector[-2], vector[-1])

    def pack(self) -> Tensor:
        """All sums as one vector, float64 [5 + 2 * means], for `sum_over_workers`."""
        first, last = (self.loss, self.num_targets, self.num_correct), (self.num_characters, self.num_stops)
        return torch.cat([torch.stack(first), *self.means.values(), torch.stack(last)])

    def plus(self, other: StepSums) -> StepSums:
        """Both added up; `other` has the same means on the same device."""
        return StepSums.unpack(self.pack() + other.pack(), tuple(self.means))

    def mean_loss(self) -> float:
        """Nats per target; 0 without targets."""
        return self.loss.item() / max(self.num_targets.item(), 1)

    def report(self) -> dict[str, float]:
        """`loss` (see `mean_loss`), `num_targets`, `accuracy` and the means by name; what counts nothing is 0."""
        pairs = {name: pair.tolist() for name, pair in self.means.items()}
        return {
            "loss": self.mean_loss(),
            "num_targets": int(self.num_targets.item()),
            "accuracy": self.num_correct.item() / max(self.num_targets.item(), 1),
            **{name: value / max(count, 1) for name, (value, count) in pairs.items()},
        }


def _detached(value: Tensor) -> Tensor:
    return value.detach().double()
