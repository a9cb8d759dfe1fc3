"""Interfaces of the objectives: a collator turns rows into arrays, and a head turns arrays into a loss."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Collator, Selection, Symbols, select
from tokenfree.train.model.common.basic import Cost, count_parameters
from tokenfree.train.model.encoder import ModelConfig


class Loss(NamedTuple):
    """Sums over the targets of a batch.

    The loop divides them by the number of targets of the whole global batch.
    """

    total: torch.Tensor  # float32 scalar, nats
    num_targets: torch.Tensor  # int64 scalar
    num_correct: torch.Tensor  # int64 scalar: the right answer had the highest logit
    means: Mapping[str, tuple[torch.Tensor, torch.Tensor]] = {}  # further metrics by name: sum and count
    auxiliary: torch.Tensor | None = None  # float32 scalar that training adds to `total`, nats


class Head(torch.nn.Module):
    """Base class of the module that is trained together with the encoder: `head(encoder, batch) -> Loss`."""

    means: tuple[str, ...] = ()  # names in each `Loss.means` of this head

    def add_neighbours(self, neighbours: torch.nn.Module | None, /) -> None:
        """Let the head add the scores of `model.neighbours`, for objectives that take them."""
        self.neighbours = neighbours

    def target_logits(self, encoder: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        raise NotImplementedError

    def learn(self, pieces: Sequence[str], counts_V: np.ndarray | None) -> None:
        """Initialise the output layer from the data before training.

        `pieces` are the subwords of the vocabulary; it is empty without one. `counts_V`, int64 [V], is the
        number of times that each class occurs in the training split. If it is None, the bias starts at zero.
        """
        if counts_V is not None:
            bias = self.get_parameter("output.bias")
            shares_V = torch.from_numpy((counts_V + 1) / (counts_V.sum() + len(counts_V)))
            bias.data.copy_(shares_V.log())

    def multiply_accumulates(self) -> int:
        """Return the multiply-accumulates of the forward pass for one target, without the next-sentence matrix."""
        named = self.named_parameters()
        return sum(
            parameter.numel()
            for name, parameter in named
            if parameter.ndim == 2 and not name.startswith(("next_sentence.", "neighbours.rows."))
        )


class Objective(ABC):
    """Base class of an objective's settings: the `Config` of each file in this package."""

    name: str
    max_predictions: int  # maximum number of targets of an example
    # Examples have two parts, and the head predicts if the second follows the first.
    next_sentence: bool = False
    gives_words = False  # the units of the encoder are the words of `tokenfree.preprocess.text.words`
    takes_neighbours = False  # its head adds the scores of `model.neighbours`

    @abstractmethod
    def build(self, width: int, vocabulary_size: int) -> Head:
        """Return the head for an encoder of `width` and a vocabulary of `vocabulary_size` subwords."""

    def vocabulary_size(self, model: ModelConfig) -> int | None:
        """Return the number of subwords that `model` is made for; 0: it needs no vocabulary, None: any number."""
        return None

    @abstractmethod
    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        """Return the collator for inputs of `length` positions. Its random draws depend on `seed`."""

    @abstractmethod
    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        """Return the reasons why `model` does not fit this objective and vocabulary, one line each."""

    @abstractmethod
    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        """Return the symbols that can be targets, for the context-free baselines; None if there are no baselines."""

    def for_validation(self) -> Self:
        """Return the objective that held-out targets are chosen by."""
        return self


@settings
class MaskedObjective(Objective):
    """An objective that hides a share of the symbols.

    Attributes:
        mask_fraction: share of the symbols that are selected as targets, above 0 to 1; of the words, in
            objectives that mask words.
        validation_mask_fraction: mask fraction of validation, so that runs with other mask fractions remain
            comparable; null: `mask_fraction`.
        output_bias: initial bias of a class in the output layer. `zeros`: as in the papers; `frequencies`:
            the logarithm of its share of the training split.
    """

    mask_fraction: Annotated[float, Field(gt=0, le=1)] = 0.15
    validation_mask_fraction: Annotated[float, Field(gt=0, le=1)] | None = 0.15
    output_bias: Literal["zeros", "frequencies"] = "zeros"

    def for_validation(self) -> Self:
        if self.validation_mask_fraction is None:
            return self
        return dataclasses.replace(self, mask_fraction=self.validation_mask_fraction)


class MaskingCollator(Collator):
    """A collator that selects targets by the settings of a `MaskedObjective`. Its draws depend on `seed`."""

    # Whether batches have features for `model.neighbours`.
    reads_ngrams = False
    # Whether batches name the subwords beside their targets, if the objective can.
    names_neighbours = False

    def __init__(self, config: Any, length: int, seed: int) -> None:
        self.length, self._config, self._seed = length, config, seed

    def select(
        self, counts: np.ndarray, usable: np.ndarray, sample_ids: np.ndarray, max_selected: int | None = None
    ) -> Selection:
        """Select `mask_fraction` of the usable items of each row, by default at most `max_predictions`."""
        fraction, limit = self._config.mask_fraction, max_selected or self._config.max_predictions
        return select(
            counts, usable, fraction=fraction, max_selected=limit, seed=self._seed, sample_ids=sample_ids
        )


def head_cost(objective: Objective, model: ModelConfig, num_targets: int) -> Cost | None:
    """Return the cost of the objective's head for an example; None if it depends on the data's vocabulary."""
    size = objective.vocabulary_size(model)
    if size is None:
        return None
    with torch.device("meta"):
        head = objective.build(model.width, size)
        if objective.takes_neighbours:
            head.add_neighbours(model.neighbours.build(size))
    multiply_accumulates = num_targets * head.multiply_accumulates()
    return Cost(
        "head of the objective", (num_targets, model.width), count_parameters(head), multiply_accumulates
    )


def check_symbols(objective: str, model: ModelConfig, symbols: str, *, instead: str) -> list[str]:
    """Return a problem if the embedder does not read `symbols`, else [].

    `instead` names an embedder that does.
    """
    actual = model.embedder.symbols
    if actual == symbols:
        return []
    return [
        f"model.embedder.name: {model.embedder.name} reads {actual}, but objective.name: {objective} gives it "
        f"{symbols}; set model.embedder.name to {instead}, or choose another objective"
    ]
