"""What every task has: examples become items, items arrays, arrays a loss or outputs, outputs predictions and scores.

A task is a file of this package, or a class of the user's, chosen by `task.name`. An example is what a file has; an
item is what the model reads at once: an example, or a window of a long one. The outputs of all windows of an example
come together in its prediction. Used by train/loop/finetuning.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Head, Loss
from tokenfree.train.tasks.inputs import TextInputs
from tokenfree.train.tasks.metrics import Metrics

Split = Literal["train", "dev", "test"]
Outputs = Mapping[str, np.ndarray]  # of one item, by the names that the head gives


class Item(NamedTuple):
    """What the model reads at once, as the task's own collator understands it."""

    example: int  # its number among the examples
    size: int  # positions that it takes: batches are of items of about one size
    content: Any


class TaskCollator(Protocol):
    """Makes items of examples, and arrays of items."""

    def items(self, examples: Sequence[Any], *, training: bool) -> list[Item]:
        """The items of examples, in their order; in `training` an example may have none.

        Raises:
            UserError: an example is longer than the model reads, where that is not cut into windows.
        """
        ...

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        """A batch. The first axis of each array is the item; what is random depends on `sample_ids`, int64 [b], alone.

        `codepoints` int64 [b, length], `mask` bool alike, `target_mask` bool [b, P] (where there is something to
        predict, by which utilisation is counted) and `num_characters` int64 [b] are among them; the others are for the
        head.
        """
        ...


class TaskHead(Head, ABC):
    """The part of a task that is trained with the encoder."""

    @abstractmethod
    def outputs(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What predictions are made of, with the item as first axis."""

    @abstractmethod
    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """The loss of outputs."""

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What of the outputs is kept of each item until predictions are made of all: what is large is better not."""
        return outputs

    def forward(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """The loss of the encoder, with this head, on a batch of the collator."""
        return self.loss(self.outputs(encoder, batch), batch)


class DownstreamTask(ABC):
    """The `Config` of a task; by default its examples are in files and its scores are shares of what is right."""

    name: str
    needs_files = True  # whether examples come from files; else the task makes them
    lower_is_better = False  # whether the main score is an error
    trains_pooled = False  # whether it trains the encoder's layer behind `Encoder.pool`

    @abstractmethod
    def examples(self, split: Split, path: str | None) -> Sequence[Any]:
        """Return the examples of a split; `path` is None where the task needs no files.

        Raises:
            UserError: what is wrong with a file, with its line and the remedy.
        """

    @abstractmethod
    def raw(self, key: str, text: str) -> Any:
        """Return the example of a text as `tokenfree predict` is given it, without what is to be found.

        Raises:
            UserError: the text is not one of this task, such as a pair without its second text.
        """

    def texts(self, example: Any) -> Sequence[str]:
        """Return what an example has to read, by which an embedder with a vocabulary of characters learns it."""
        return ()

    def fitted(self, examples: Sequence[Any]) -> Self:
        """Return the task with what it takes from the examples that are trained on, such as the names of labels.

        Raises:
            UserError: they cannot be trained on.
        """
        return self

    def check(self, model: ModelConfig, length: int, /) -> list[str]:
        """Return what keeps `model` from this task with inputs of `length` positions, one line each."""
        return []

    def adapted(self, model: ModelConfig, /) -> ModelConfig:
        """Return the settings of a pretrained model with what the task changes of them; its weights still fit."""
        return model

    @abstractmethod
    def build(self, model: ModelConfig, /) -> TaskHead:
        """Return the head for an encoder of this model, with fresh weights; the task is `fitted`."""

    @abstractmethod
    def collator(self, inputs: TextInputs, seed: int) -> TaskCollator:
        """Return the collator for a model that reads `inputs`; its draws depend on `seed`.

        Raises:
            UserError: its inputs are too short.
        """

    @abstractmethod
    def predictions(
        self, examples: Sequence[Any], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return a line of RUN/predictions for each example: `key`, and what else JSON can hold. One output an item."""

    @abstractmethod
    def scores(self, examples: Sequence[Any], predictions: Sequence[Mapping[str, Any]]) -> Metrics | None:
        """Return how right they are; the main score decides on the best checkpoint. None if answers are not given."""
