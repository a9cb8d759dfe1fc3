"""What every task has: examples become items, items arrays, arrays a loss or outputs, outputs predictions and scores.

A task is a file of this package, or a class of the user's, chosen by `task.name`. An example is what a file has; an
item is what the model reads at once: an example, or a window of a long one. The outputs of all windows of an example
come together in its prediction. Used by train/loop/finetuning.py.
"""

from __future__ import annotations

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


class TaskHead(Head):
    """The part of a task that is trained with the encoder."""

    def outputs(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What predictions are made of, with the item as first axis."""
        raise NotImplementedError

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """The loss of outputs."""
        raise NotImplementedError

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What of the outputs is kept of each item until predictions are made of all: what is large is better not."""
        return outputs

    def forward(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """The loss of the encoder, with this head, on a batch of the collator."""
        return self.loss(self.outputs(encoder, batch), batch)


class TaskModule(Protocol):
    """What a task builds. What most answer alike they have from `TaskHead`."""

    @property
    def means(self) -> tuple[str, ...]:
        """The names in every `Loss.means`."""
        ...

    def __call__(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor], /) -> Loss:
        """The loss on a batch."""
        ...

    def outputs(self, encoder: torch.nn.Module, batch: Mapping[str, Tensor], /) -> dict[str, Tensor]:
        """See `TaskHead.outputs`."""
        ...

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], /) -> Loss:
        """See `TaskHead.loss`."""
        ...

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], /) -> Mapping[str, Tensor]:
        """See `TaskHead.kept`."""
        ...

    def multiply_accumulates(self) -> int:
        """See `tokenfree.train.objectives.base.Head`."""
        ...


class DownstreamTask(Protocol):
    """The `Config` of a task. What most answer alike they have from `TaskDefaults`."""

    @property
    def name(self) -> str:
        """The name of its file."""
        ...

    @property
    def needs_files(self) -> bool:
        """Whether examples come from files; else the task makes them."""
        ...

    @property
    def lower_is_better(self) -> bool:
        """Whether the main score is an error."""
        ...

    @property
    def trains_pooled(self) -> bool:
        """Whether it trains the encoder's layer behind `Encoder.pool`."""
        ...

    def examples(self, split: Split, path: str | None) -> Sequence[Any]:
        """The examples of a split; `path` is None where the task needs no files.

        Raises:
            UserError: what is wrong with a file, with its line and the remedy.
        """
        ...

    def raw(self, key: str, text: str) -> Any:
        """The example of a text as `tokenfree predict` is given it, without what is to be found.

        Raises:
            UserError: the text is not one of this task, such as a pair without its second text.
        """
        ...

    def texts(self, example: Any) -> Sequence[str]:
        """What an example has to read, by which an embedder with a vocabulary of characters learns it."""
        ...

    def fitted(self, examples: Sequence[Any]) -> Self:
        """The task with what it takes from the examples that are trained on, such as the names of labels.

        Raises:
            UserError: they cannot be trained on.
        """
        ...

    def check(self, model: ModelConfig, length: int, /) -> list[str]:
        """What keeps `model` from this task with inputs of `length` positions, one line each."""
        ...

    def adapted(self, model: ModelConfig, /) -> ModelConfig:
        """The settings of a pretrained model with what the task changes of them; its weights still fit."""
        ...

    def build(self, model: ModelConfig, /) -> TaskHead:
        """The head for an encoder of this model, with fresh weights; the task is `fitted`."""
        ...

    def collator(self, inputs: TextInputs, seed: int) -> TaskCollator:
        """The collator for a model that reads `inputs`; its draws depend on `seed`.

        Raises:
            UserError: its inputs are too short.
        """
        ...

    def predictions(
        self, examples: Sequence[Any], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """A line of RUN/predictions for each example: `key`, and what else JSON can hold. One output an item."""
        ...

    def scores(self, examples: Sequence[Any], predictions: Sequence[Mapping[str, Any]]) -> Metrics | None:
        """How right they are; the main score decides on the best checkpoint. None where the answers are not given."""
        ...


class TaskDefaults:
    """A task whose examples are in files and whose scores are shares of what is right."""

    needs_files = True
    trains_pooled = False
    lower_is_better = False

    def texts(self, example: Any) -> Sequence[str]:
        """Nothing, of a task that reads no texts."""
        return ()

    def fitted(self, examples: Sequence[Any]) -> Self:
        """See `DownstreamTask.fitted`."""
        return self

    def check(self, model: ModelConfig, length: int) -> list[str]:
        """See `DownstreamTask.check`."""
        return []

    def adapted(self, model: ModelConfig) -> ModelConfig:
        """See `DownstreamTask.adapted`."""
        return model
