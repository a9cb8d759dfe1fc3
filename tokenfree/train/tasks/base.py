"""Interface of a task: examples become items, items arrays, arrays a loss or outputs, outputs predictions and scores.

A task is a file of this package, or a custom class, chosen by `task.name`. An example is what a file has; an item is
what the model reads at once: an example, or a window of a long one. The outputs of all windows of an example come
together in its prediction. Used by train/loop/finetuning.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Head, Loss
from tokenfree.train.tasks.inputs import TextInputs

Split = Literal["train", "dev", "test"]
Outputs = Mapping[str, np.ndarray]  # of one item, by the names that the head gives


@dataclass(frozen=True)
class Metrics:
    """Scores by name. Shares and correlations are between -1 and 1, never percent."""

    values: Mapping[str, float]
    main: str  # the one by which runs are compared

    @property
    def score(self) -> float:
        """The main one."""
        return self.values[self.main]


class Item(NamedTuple):
    """What the model reads at once; only the task's own collator reads its content."""

    example: int  # its number among the examples
    size: int  # positions that it takes: batches are of items of about one size
    content: Any


class TaskCollator(ABC):
    """Makes items of examples, and arrays of items."""

    @abstractmethod
    def items(self, examples: Sequence[Any], *, training: bool) -> list[Item]:
        """Return the items of examples, in their order; in `training` an example may have none.

        Raises:
            UserError: an example is longer than the model reads, where that is not cut into windows.
        """

    @abstractmethod
    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        """Return a batch. The first axis of each array is the item; draws depend only on `sample_ids`, int64 [b].

        `codepoints` int64 [b, length], `mask` bool alike, `target_mask` bool [b, P] (where there is something to
        predict, by which utilisation is counted) and `num_characters` int64 [b] are among them; the others are for the
        head.
        """


class TaskHead(Head, ABC):
    """The part of a task that is trained with the encoder."""

    @abstractmethod
    def outputs(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what predictions are made of, with the item as first axis."""

    @abstractmethod
    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """Return the loss of outputs."""

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the part of the outputs that is kept until predictions are made of all items; it should be small."""
        return outputs

    def forward(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> Loss:
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
            UserError: what is wrong with a file, with its line and the action.
        """

    @abstractmethod
    def raw(self, key: str, text: str) -> Any:
        """Return the example of a text that `tokenfree predict` is given, without the answer.

        Raises:
            UserError: the text is not one of this task, such as a pair without its second text.
        """

    def texts(self, example: Any) -> Sequence[str]:
        """Return the texts of an example, from which an embedder with a vocabulary of characters learns it."""
        return ()

    def fitted(self, examples: Sequence[Any]) -> Self:
        """Return the task with what it takes from the training examples, such as the names of labels.

        Raises:
            UserError: the task cannot be trained on them.
        """
        return self

    def check(self, model: ModelConfig, length: int, /) -> list[str]:
        """Return what keeps `model` from this task with inputs of `length` positions, one line each."""
        return []

    def adapted(self, model: ModelConfig, /) -> ModelConfig:
        """Return the settings of a pretrained model with the task's changes; its weights still fit."""
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
        """Return a line of RUN/predictions for each example: `key`, and other values of JSON. One output per item."""

    @abstractmethod
    def scores(self, examples: Sequence[Any], predictions: Sequence[Mapping[str, Any]]) -> Metrics | None:
        """Return the scores, of which the main one decides on the best checkpoint. None if answers are not given."""
