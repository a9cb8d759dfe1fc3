"""A model with the head of its objective or task, and the sums of its losses over a batch."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.counter_random import key
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.model.common.basic import takes
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.objectives.base import Head, Loss
from tokenfree.train.torch_state import random_numbers

_SCALARS = 5


class StepSums(NamedTuple):
    """Sums over the examples of a batch, float64: a tuple, so that data parallelism and compiler find its tensors."""

    loss: Tensor  # scalar: sum of the losses of all targets, in nats
    num_targets: Tensor  # scalar
    num_correct: Tensor  # scalar: targets whose right answer had the highest logit
    means: Mapping[str, Tensor]  # by name [2]: sum and count of each further mean that the head reports
    # Scalar: characters of text, without special ones and padding; 0 in the model's output.
    num_characters: Tensor
    num_stops: Tensor  # scalar: workers that were asked to stop; 0 in the model's output

    @classmethod
    def of(cls, loss: Loss, means: Sequence[str]) -> Self:
        total, num_targets, num_correct = (
            _detached(scalar) for scalar in (loss.total, loss.num_targets, loss.num_correct)
        )
        pairs = {name: torch.stack([_detached(value) for value in loss.means[name]]) for name in means}
        nothing = torch.zeros_like(total)
        return cls(total, num_targets, num_correct, pairs, nothing, nothing)

    @classmethod
    def zeros(cls, means: Sequence[str], device: torch.device) -> Self:
        return cls.unpack(torch.zeros(_SCALARS + 2 * len(means), dtype=torch.float64, device=device), means)

    @classmethod
    def unpack(cls, vector: Tensor, means: Sequence[str]) -> Self:
        pairs = dict(zip(means, vector[3:-2].unflatten(0, (len(means), 2)), strict=True))
        return cls(vector[0], vector[1], vector[2], pairs, vector[-2], vector[-1])

    def pack(self) -> Tensor:
        """Return all sums as one vector, float64 [5 + 2 * means], for `sum_over_workers`."""
        first, last = (self.loss, self.num_targets, self.num_correct), (self.num_characters, self.num_stops)
        return torch.cat([torch.stack(first), *self.means.values(), torch.stack(last)])

    def plus(self, other: Self) -> Self:
        return self.unpack(self.pack() + other.pack(), tuple(self.means))

    def mean_loss(self) -> float:
        """Return the loss in nats per target; 0 without targets."""
        return self.loss.item() / max(self.num_targets.item(), 1)

    def report(self) -> dict[str, float]:
        """Return `loss` (nats per target), `num_targets`, `accuracy` and the means by name.

        A mean of nothing is 0.
        """
        pairs = {name: pair.tolist() for name, pair in self.means.items()}
        return {
            "loss": self.mean_loss(),
            "num_targets": int(self.num_targets.item()),
            "accuracy": self.num_correct.item() / max(self.num_targets.item(), 1),
            **{name: value / max(count, 1) for name, (value, count) in pairs.items()},
        }


def _detached(value: Tensor) -> Tensor:
    return value.detach().double()


class ModelWithHead(nn.Module):
    """The encoder with a head, as one module for the optimizer and for data parallelism."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head: Head = takes(head, "encoder, batch")

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, StepSums]:
        """Return the summed loss over the targets of `batch` (nats, float32 scalar, with gradient) and its sums."""
        loss = self.head(self.encoder, batch)
        total = loss.total if loss.auxiliary is None else loss.total + loss.auxiliary
        return total, StepSums.of(loss, self.head.means)


def pretraining_task(recipe: PretrainRecipe, vocabulary_size: int) -> ModelWithHead:
    """Return the model of a recipe with the head of its objective. `vocabulary_size` is 0 for data without subwords."""
    encoder = recipe.model.build()
    head = recipe.objective.build(recipe.model.width, vocabulary_size)
    if recipe.objective.takes_neighbours:
        head.add_neighbours(recipe.model.neighbours.build(vocabulary_size))
    return ModelWithHead(encoder, head)


def build_task(recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> ModelWithHead:
    """Return the model with new weights, which depend only on `train.seed`.

    The caller's random state is unchanged.
    """
    with random_numbers() as seed:
        seed(int(key(recipe.train.seed, "weights")))
        return pretraining_task(recipe, vocabulary.size if vocabulary is not None else 0)
