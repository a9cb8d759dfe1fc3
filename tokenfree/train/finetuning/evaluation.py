"""What a model predicts for the examples of a split, and how right it is; shared among the workers of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tokenfree.train.loop.step_sums import StepSums
from tokenfree.train.loop.task import Task, on_device
from tokenfree.train.parallel.collectives import gather, sum_over_workers
from tokenfree.train.tasks.base import DownstreamTask, Item, Outputs, TaskCollator, TaskHead
from tokenfree.train.tasks.metrics.metrics import Metrics

_MOST = 32  # items of a batch, as far as `train.micro_batch` allows so many


class Evaluated(NamedTuple):
    """What was found: the same on all workers."""

    predictions: list[dict[str, Any]]  # one an example
    metrics: Metrics | None  # None: the right answers are not given
    loss: float  # nats per target; 0 without targets


class Evaluator:
    """Evaluates examples of one split.

    Args:
        task: fitted.
        collator: of the task.
        examples: to be evaluated.
        micro_batch: the most items that are read at once; None: 32.
        rank, world_size: this process among the workers.

    Raises:
        UserError: an example is longer than the model reads, where that is refused.
    """

    def __init__(
        self,
        task: DownstreamTask,
        collator: TaskCollator,
        examples: Sequence[Any],
        *,
        micro_batch: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._task, self._collator, self._examples = task, collator, examples
        self._items = collator.items(examples, training=False)
        self._rank, self._world_size = rank, world_size
        by_size = np.argsort([item.size for item in self._items], kind="stable")
        size = min(_MOST, micro_batch or _MOST)
        self._batches = [by_size[start : start + size].tolist() for start in range(0, len(by_size), size)]

    @torch.no_grad()
    def __call__(self, model: Task, device: torch.device, *, equally_many: bool = False) -> Evaluated:
        """All workers call it. `model` is in evaluation mode; where they hold parts of it, all make `equally_many`
        passes.
        """
        sums, own = StepSums.zeros(model.head.means, device), dict[int, Outputs]()
        for number in range(self._rank, len(self._batches), self._world_size):
            chosen = self._batches[number]
            outputs, of_batch = self._forward(model, chosen, device)
            sums = sums.plus(of_batch)
            own.update(zip(chosen, _by_item(outputs, len(chosen)), strict=True))
        if equally_many and self._batches and self._rank >= len(self._batches) % self._world_size > 0:
            self._forward(model, self._batches[0], device)
        values = StepSums.unpack(sum_over_workers(sums.pack()), model.head.means)
        everything = {number: output for part in gather(own) for number, output in part.items()}
        ordered = [everything[number] for number in range(len(self._items))]
        predictions = self._task.predictions(self._examples, self._items, ordered)
        return Evaluated(predictions, self._task.scores(self._examples, predictions), values.mean_loss())

    def _forward(
        self, model: Task, chosen: Sequence[int], device: torch.device
    ) -> tuple[Mapping[str, np.ndarray], StepSums]:
        items: list[Item] = [self._items[number] for number in chosen]
        arrays = self._collator(items, np.array(chosen, dtype=np.int64))
        batch, head = on_device(arrays, device), model.head
        assert isinstance(head, TaskHead), "the model was built by a task"
        outputs = head.outputs(model.encoder, batch)
        loss = StepSums.of(head.loss(outputs, batch), head.means)
        return {name: values.float().cpu().numpy() if values.is_floating_point() else values.cpu().numpy()
                for name, values in head.kept(outputs, batch).items()}, loss  # fmt: skip


def _by_item(outputs: Mapping[str, np.ndarray], count: int) -> list[Outputs]:
    return [{name: values[row] for name, values in outputs.items()} for row in range(count)]
