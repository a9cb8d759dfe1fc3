"""The source of fine-tuning: the examples of a task, its head, and the scores that decide on the best checkpoint."""

from __future__ import annotations

import collections
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import write_atomically
from tokenfree.train.batches.counter_random import key
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetuning.evaluation import Evaluated, Evaluator
from tokenfree.train.finetuning.files import TaskFiles
from tokenfree.train.finetuning.loader import ItemLoader
from tokenfree.train.loop.task import Task
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoint_state import RunProgress
from tokenfree.train.tasks.base import DownstreamTask, Split
from tokenfree.train.tasks.inputs.choose import text_inputs

PREDICTIONS = "predictions"  # a folder of a run, with a file of JSON lines for each split


class TaskSource:
    """See `tokenfree.train.loop.source.Source`.

    Args:
        recipe: whose task is fitted to the examples that are trained on.
        files: with the examples.
        rank, world_size: this process among the workers.

    Raises:
        UserError: the files cannot be read, or examples do not fit the model.
    """

    keeps_best = True

    def __init__(self, recipe: FinetuneRecipe, files: TaskFiles, *, rank: int, world_size: int) -> None:
        self._recipe, self._files, self._rank, self._world_size = recipe, files, rank, world_size
        config = recipe.train
        self._task: DownstreamTask = recipe.task
        self.content, self.vocabulary = files.content, files.vocabulary
        self._collator = self._task.collator(text_inputs(recipe.model, config.length, self.vocabulary), config.seed)
        self._examples = functools.cache(self._read)
        self._evaluator = functools.cache(self._make_evaluator)
        items = self._collator.items(self._examples("train"), training=True)
        if not items:
            raise UserError(f"{files.paths.get('train')}: there is nothing to train on in this file; give another")
        self.loader = ItemLoader(
            items,
            self._collator,
            content=self.content,
            global_batch=config.global_batch,
            length=config.length,
            seed=config.seed,
            rank=rank,
            world_size=world_size,
        )

    def check(self) -> None:
        """See that the other splits can be read and evaluated.

        Raises:
            UserError: what is wrong with a file or an example, or the development set has no labels.
        """
        for split in ("dev", "test"):
            if self._has(split):
                self._evaluator(split)

    def build(self) -> Task:
        """The model with fresh weights, and what its embedder takes from the texts."""
        recipe = self._recipe
        with torch.random.fork_rng():
            torch.manual_seed(int(key(recipe.train.seed, "weights")))
            task = Task(recipe.model.build(), self._task.build(recipe.model))
        if task.encoder.embedder.learns_characters:
            task.encoder.embedder.learn(frequent_characters(self._texts()))
        return task

    def validate(self, task: Task, device: torch.device, *, equally_many: bool) -> dict[str, float]:
        """The scores on the development set, the main one also as `validation_main`, and `validation_loss`, nats per
        target.

        Raises:
            UserError: the development set has no labels.
        """
        if not self._has("dev"):
            return {}
        found = self._evaluator("dev")(task, device, equally_many=equally_many)
        if found.metrics is None:
            raise UserError(f"{self._files.paths['dev']}: the examples of --dev have no labels to be compared with")
        scores = {f"validation_{name}": value for name, value in found.metrics.values.items()}
        return {"validation_loss": found.loss, **scores, "validation_main": found.metrics.score}

    def badness(self, validation: Mapping[str, float]) -> float:
        """The main score, so that less is better."""
        score = validation["validation_main"]
        return score if self._task.lower_is_better else -score

    def result(
        self, task: Task, device: torch.device, progress: RunProgress, folder: Path | None, *, equally_many: bool
    ) -> dict[str, Any]:
        """The scores of the best checkpoint on the development and the test set; their predictions are written."""
        scores: dict[str, Any] = {}
        for split in ("dev", "test"):
            if self._has(split):
                found = self._evaluator(split)(task, device, equally_many=equally_many)
                scores[split] = dict(found.metrics.values) if found.metrics is not None else {}
                if folder is not None:
                    write_predictions(folder, split, found)
        step = self._recipe.train.steps if progress.best_step is None else progress.best_step
        checkpoint = f"checkpoints/{checkpoints.name(step)}"  # within the run: the result is the same wherever it lies
        return {"task": self._task.name, "best_step": progress.best_step, **scores, "checkpoint": checkpoint}

    def _has(self, split: Split) -> bool:
        return split in self._files.paths or not self._task.needs_files

    def _texts(self) -> Iterator[str]:
        return (text for example in self._examples("train") for text in self._task.texts(example))

    def _read(self, split: Split) -> Sequence[Any]:
        return self._task.examples(split, self._files.paths.get(split))

    def _make_evaluator(self, split: Split) -> Evaluator:
        return Evaluator(
            self._task,
            self._collator,
            self._examples(split),
            micro_batch=self._recipe.train.micro_batch,
            rank=self._rank,
            world_size=self._world_size,
        )


def write_predictions(folder: Path, split: str, found: Evaluated) -> None:
    """Write `predictions/SPLIT.jsonl`, a line for each example."""
    (folder / PREDICTIONS).mkdir(exist_ok=True)
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in found.predictions)
    write_atomically(folder / PREDICTIONS / f"{split}.jsonl", "".join(lines))


def frequent_characters(texts: Iterable[str]) -> np.ndarray:
    """All codepoints of texts, the most frequent first, the lower of equals first: int64."""
    counts = collections.Counter[str]()
    for text in texts:
        counts.update(text)
    ordered = sorted(counts, key=lambda character: (-counts[character], character))
    return np.array([ord(character) for character in ordered], dtype=np.int64)
