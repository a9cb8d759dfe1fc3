"""Interface of a task: examples become items, items arrays, arrays a loss or outputs, outputs predictions and scores.

An item is what the model reads at once: an example, or a window of a long one. The outputs of all windows of
an example are combined into its prediction.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
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
Predict = Callable[[Sequence[Any]], Sequence[Mapping[str, Any]]]  # the fields of predictions that scores need
Outputs = Mapping[str, np.ndarray]  # outputs for one item, by the names that the head returns


@dataclass(frozen=True)
class Metrics:
    """Scores by name. Shares and correlations are between -1 and 1, never percent."""

    values: Mapping[str, float]
    main: str  # name of the score by which runs are compared

    @property
    def score(self) -> float:
        return self.values[self.main]


class Item(NamedTuple):
    """An input that the model reads at once. Only the collator of the task reads its content."""

    example: int  # number of its example
    size: int  # positions that it takes; a batch has items of similar size
    content: Any


class TaskCollator(ABC):
    @abstractmethod
    def items(self, examples: Sequence[Any], *, training: bool) -> list[Item]:
        """Return the items of examples in order.

        Raises UserError if an example that cannot be cut is too long.
        """

    @abstractmethod
    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        """Return a batch.

        The first axis of each array is the item. Draws depend only on `sample_ids`, int64 [b]. Every batch
        has `codepoints` int64 [b, length], `mask` bool [b, length], `target_mask` bool [b, P] and
        `num_characters` int64 [b]. `target_mask` is true where there is something to predict, and utilisation
        counts it. The other arrays are for the head.
        """


class TaskHead(Head, ABC):
    @abstractmethod
    def outputs(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the arrays that predictions are made of. Their first axis is the item."""

    @abstractmethod
    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """Return the loss of outputs."""

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the part of the outputs to keep until all items are evaluated. It should be small."""
        return outputs

    def forward(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        return self.loss(self.outputs(encoder, batch), batch)


class DownstreamTask(ABC):
    """The `Config` of a task. By default, its examples are in files and a higher score is better."""

    name: str
    needs_files = True  # whether examples come from files; otherwise the task generates them
    lower_is_better = False  # whether the main score is an error
    trains_pooled = False  # whether it trains the layer of `Encoder.pool`

    @abstractmethod
    def examples(self, split: Split, path: Any) -> Sequence[Any]:
        """Return the examples of a split. `path` is None if there is no file, which only tasks without files permit.

        Raises UserError if a file is invalid.
        """

    @abstractmethod
    def raw(self, key: str, text: str) -> Any:
        """Return an example without an answer, for `tokenfree predict`.

        Raises UserError if the text is unfit.
        """

    def texts(self, example: Any) -> Sequence[str]:
        """Return the texts of an example, from which an embedder can build its vocabulary of characters."""
        return ()

    def fitted(self, examples: Sequence[Any]) -> Self:
        """Return the task with what it learns from examples, such as labels.

        Raises UserError if it cannot use them.
        """
        return self

    def check(self, model: ModelConfig, length: int, /) -> Iterable[str]:
        """Return the problems of using `model` for this task with inputs of `length` positions, one line each."""
        return ()

    def adapted(self, model: ModelConfig, /) -> ModelConfig:
        """Return the settings of a pretrained model, changed for the task. Its weights still fit."""
        return model

    @abstractmethod
    def build(self, model: ModelConfig, /) -> TaskHead:
        """Return a head with fresh weights for an encoder of this model. The task must be `fitted`."""

    def learn(self, head: Any, examples: Sequence[Any], held_out: Sequence[Any], /) -> None:
        """Initialise what the head learns from the training examples before training, such as frequencies.

        `held_out` are the examples of the development part, if there is one.
        """
        return None

    @abstractmethod
    def collator(self, inputs: TextInputs, seed: int) -> TaskCollator:
        """Return the collator.

        Its draws depend on `seed`. Raises UserError if the model's inputs are too short.
        """

    @abstractmethod
    def predictions(
        self, examples: Sequence[Any], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return one line of RUN/predictions per example: `key` and other JSON values.

        Each item has one output.
        """

    @abstractmethod
    def scores(self, examples: Sequence[Any], predictions: Sequence[Mapping[str, Any]]) -> Metrics | None:
        """Return the scores, or None without correct answers.

        The main score decides on the best checkpoint.
        """

    def baseline_characters(self, split: Split) -> float:
        """Return the maximum number of characters of a split that baselines read."""
        return math.inf

    def baselines(self, examples: Sequence[Any]) -> Mapping[str, Predict]:
        """Return simple predictors by name, fitted to training examples. A trained model should beat them."""
        return {}
