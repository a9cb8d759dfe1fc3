"""What every objective has: rows become arrays in a collator, arrays become a loss in a head."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Collator, Symbols
from tokenfree.train.batches.next_sentence import PAIR_RULE
from tokenfree.train.model.common.basic import Cost, count_parameters
from tokenfree.train.model.encoder import ModelConfig


class Loss(NamedTuple):
    """Sums over the targets of a batch; the loop divides by the number of targets of the whole global batch."""

    total: torch.Tensor  # float32 scalar, nats
    num_targets: torch.Tensor  # int64 scalar
    num_correct: torch.Tensor  # int64 scalar: the right answer had the highest logit
    means: Mapping[str, tuple[torch.Tensor, torch.Tensor]] = {}  # more to report: by name a sum and its count


class Head(torch.nn.Module):
    """The part of an objective that is trained with the encoder: `head(encoder, batch) -> Loss`."""

    means: tuple[str, ...] = ()  # the names in every `Loss.means` of this head

    def target_logits(self, encoder: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The logits [N, V] of the N targets of a batch, row by row: float, of all symbols that may be answers."""
        raise NotImplementedError

    def learn(self, pieces: Sequence[str], counts_V: np.ndarray | None) -> None:
        """Set what the output layer takes from the data before training: the subwords, or none, and counts of classes.

        `counts_V`, int64 [V], says how often each class stands in the training split; None: its bias begins with zeros.
        """
        if counts_V is not None:
            bias = self.get_parameter("output.bias")
            shares_V = torch.from_numpy((counts_V + 1) / (counts_V.sum() + len(counts_V)))
            bias.data.copy_(shares_V.log())

    def multiply_accumulates(self) -> int:
        """Of the forward pass for one target: every matrix of a head is applied once to each target, but for that of
        next-sentence prediction, which is applied once to an example, to no account.
        """
        matrices = (name for name, parameter in self.named_parameters() if parameter.ndim == 2)
        return sum(self.get_parameter(name).numel() for name in matrices if not name.startswith("next_sentence."))


class Objective(ABC):
    """The `Config` of a file in this package."""

    name: str
    max_predictions: int  # the most targets of an example
    next_sentence: bool = False  # examples have two parts, and it is predicted whether they belong together
    gives_words = False  # whether the encoder is given the words of `tokenfree.preprocess.text.words` as its units

    @abstractmethod
    def build(self, width: int, vocabulary_size: int) -> Head:
        """Return the head for an encoder of `width` and a vocabulary of `vocabulary_size` subwords."""

    def vocabulary_size(self, model: ModelConfig) -> int | None:
        """Return the subwords of the vocabulary that `model` is made for; 0 if it needs none, None if any will do."""
        return None

    @abstractmethod
    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        """Return the collator of inputs of `length` positions, whose draws depend on `seed`."""

    @abstractmethod
    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        """Return what keeps `model` from this objective on data with this vocabulary, one line each."""

    @abstractmethod
    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        """Return what the targets are; None where no frequencies are to be compared with."""

    def rules(self) -> Mapping[str, Sequence[str]]:
        """Return how the rules of training have changed, by their name, the oldest change first: see `Loader.check`."""
        return PAIR_RULE if self.next_sentence else {}


@settings
class MaskedObjective(Objective):
    """An objective that hides a share of the symbols.

    Attributes:
        mask_fraction: share of the symbols (words, in objectives of words) that are selected, above 0 to 1.
        validation_mask_fraction: the same in validation, so that recipes compare whatever they train with; null:
            mask_fraction.
        output_bias: initial bias of a class of the output layer: zeros, as in the papers; or frequencies, the logarithm
            of its share of the training split.
    """

    mask_fraction: Annotated[float, Field(gt=0, le=1)] = 0.15
    validation_mask_fraction: Annotated[float, Field(gt=0, le=1)] | None = 0.15
    output_bias: Literal["zeros", "frequencies"] = "zeros"

    def for_validation(self) -> Self:
        """The objective with the mask fraction of validation."""
        if self.validation_mask_fraction is None:
            return self
        return dataclasses.replace(self, mask_fraction=self.validation_mask_fraction)


def head_cost(objective: Objective, model: ModelConfig, num_targets: int) -> Cost | None:
    """What the objective's head costs beside `model`, for an example; None where only the data's vocabulary tells."""
    size = objective.vocabulary_size(model)
    if size is None:
        return None
    with torch.device("meta"):
        head = objective.build(model.width, size)
    multiply_accumulates = num_targets * head.multiply_accumulates()
    return Cost("head of the objective", (num_targets, model.width), count_parameters(head), multiply_accumulates)


def reads(objective: str, model: ModelConfig, symbols: str, *, instead: str) -> list[str]:
    """The problem of an embedder that reads other symbols than the objective gives it; `instead` names a fit one."""
    found = model.embedder.symbols
    if found == symbols:
        return []
    return [
        f"model.embedder.name: {model.embedder.name} reads {found}, but objective.name: {objective} gives it "
        f"{symbols}; set model.embedder.name to {instead}, or choose another objective"
    ]


def reads_characters(objective: str, model: ModelConfig) -> list[str]:
    """The problem of an embedder that does not read characters."""
    return reads(objective, model, "characters", instead="codepoint_hash")
