"""What is trained: the encoder with the head of its objective or task, as one module, and how arrays come to it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.counter_random import key
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.character_counts import frequent_characters
from tokenfree.train.loop.step_sums import StepSums
from tokenfree.train.mixture.mixture import Data
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.objectives.base import Head


class Task(nn.Module):
    """The encoder with a head, as one module for the optimizer and for data parallelism.

    Args:
        encoder: to be trained.
        head: `head(encoder, batch)` is the loss.
    """

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head: Head = head

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, StepSums]:
        """The sum of the losses over the targets of `batch` (nats, float32 scalar, with gradient), and its sums.

        `batch` holds the arrays of the collator, see `on_device`.
        """
        loss = self.head(self.encoder, batch)
        return loss.total, StepSums.of(loss, self.head.means)


def pretraining_task(recipe: PretrainRecipe, vocabulary_size: int) -> Task:
    """The model of a recipe with the head of its objective; `vocabulary_size` is 0 for data without subwords."""
    return Task(recipe.model.build(), recipe.objective.build(recipe.model.width, vocabulary_size))


def build_task(recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> Task:
    """The model with fresh weights, which depend on `train.seed` alone; the caller's random state stays as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(int(key(recipe.train.seed, "weights")))
        return pretraining_task(recipe, vocabulary.size if vocabulary is not None else 0)


def learn_characters(encoder: Encoder, data: Data, *, check_shards: bool = True) -> None:
    """Let an encoder with a vocabulary of characters take it from the training split of `data`.

    Every start of a run counts again and finds the same; a checkpoint that is loaded afterwards brings its own.
    `check_shards`: see `ShardReader`.
    """
    if encoder.embedder.learns_characters:
        encoder.embedder.learn(frequent_characters(data, check_shards=check_shards))


def on_device(arrays: Arrays, device: torch.device) -> dict[str, Tensor]:
    """The arrays of a batch as tensors of the same shapes and types on `device`."""
    return {name: torch.from_numpy(values).to(device, non_blocking=True) for name, values in arrays.items()}


def matrix_precision(precision: str, device: torch.device) -> torch.autocast:
    """The context in which matrix products have `train.precision`, "float32" or "bfloat16"; what is kept is float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")
