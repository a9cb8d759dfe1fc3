"""What is trained: the encoder with the head of its objective, as one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from preprocess.vocabulary import Vocabulary
from train.config import PretrainRecipe
from train.data.random import key
from train.objectives.base import Head, Loss


class Task(nn.Module):
    """The encoder with the head of its objective, as one module for the optimizer and for data parallelism."""

    def __init__(self, recipe: PretrainRecipe, vocabulary_size: int) -> None:
        super().__init__()
        self.encoder = recipe.model.build()
        self.head: Head = recipe.objective.build(recipe.model.width, vocabulary_size)

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sum of the losses over the targets (nats), and float64 without gradient [3 + 2 * means]: that sum again, the
        number of targets, of right answers, and the sum and count of each of the head's means.
        """
        loss: Loss = self.head(self.encoder, batch)
        means = [value for name in self.head.means for value in loss.means[name]]
        values = (loss.total, loss.num_targets, loss.num_correct, *means)
        return loss.total, torch.stack([value.detach().double() for value in values])

    def no_sums(self, device: torch.device) -> Tensor:
        """Zeros to add `forward`'s second value to."""
        return torch.zeros(3 + 2 * len(self.head.means), dtype=torch.float64, device=device)

    def report(self, sums: Sequence[float]) -> dict[str, float]:
        """Loss, number of targets, accuracy and the head's means, from `forward`'s second value (or several added)."""
        total, num_targets, num_correct, *rest = sums
        pairs = zip(self.head.means, rest[::2], rest[1::2], strict=True)
        return {
            "loss": total / max(num_targets, 1),
            "num_targets": int(num_targets),
            "accuracy": num_correct / max(num_targets, 1),
            **{name: value / max(count, 1) for name, value, count in pairs},
        }


def build_task(recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> Task:
    """The model with fresh weights, which depend on `train.seed` alone; the caller's random state stays as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(int(key(recipe.train.seed, "weights")))
        return Task(recipe, vocabulary.size if vocabulary is not None else 0)
