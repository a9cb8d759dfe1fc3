"""Fine-tuning: the order of examples, their batches, and the scores that choose the best checkpoint.

The items of several dozen consecutive batches are sorted by size before they are split, which reduces
padding.
"""

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically
from tokenfree.core.signals import Stop
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.counter_random import key
from tokenfree.train.config import FinetuneRecipe, LoopConfig
from tokenfree.train.data.loader import StepLoader, slice_of
from tokenfree.train.loop.parallel import gather, sum_over_workers
from tokenfree.train.loop.step import ModelWithHead, StepSums, on_device
from tokenfree.train.loop.trainer import Job, Source, TrainingLoop
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import RunProgress
from tokenfree.train.tasks.base import DownstreamTask, Item, Metrics, Outputs, Split, TaskCollator, TaskHead
from tokenfree.train.tasks.examples.files import hash_of
from tokenfree.train.tasks.examples.texts import SCHEME, parallel_paths
from tokenfree.train.tasks.inputs import text_inputs
from tokenfree.train.tasks.metrics import score_baselines
from tokenfree.train.torch_state import random_numbers

_MAX_BATCH = 32  # maximum number of items in a batch of evaluation; `train.micro_batch` may be lower


class Evaluated(NamedTuple):
    predictions: list[dict[str, Any]]  # one per example
    metrics: Metrics | None  # None if the right answers are not given
    loss: float  # nats per target; 0 without targets


class Evaluator:
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
        size = min(_MAX_BATCH, micro_batch or _MAX_BATCH)
        self._batches = [by_size[start : start + size].tolist() for start in range(0, len(by_size), size)]

    @torch.no_grad()
    def __call__(
        self, model: ModelWithHead, device: torch.device, *, equally_many: bool = False
    ) -> Evaluated:
        """Evaluate `model`. All workers must call this; `equally_many` is that of `Source.validate`."""
        sums, local_outputs = StepSums.zeros(model.head.means, device), dict[int, Outputs]()
        for number in range(self._rank, len(self._batches), self._world_size):
            chosen = self._batches[number]
            outputs, of_batch = self._forward(model, chosen, device)
            sums = sums.plus(of_batch)
            for row, item in enumerate(chosen):
                local_outputs[item] = {name: values[row] for name, values in outputs.items()}
        if equally_many and self._batches and self._rank >= len(self._batches) % self._world_size > 0:
            self._forward(model, self._batches[0], device)
        values = StepSums.unpack(sum_over_workers(sums.pack()), model.head.means)
        everything = {number: output for part in gather(local_outputs) for number, output in part.items()}
        ordered = [everything[number] for number in range(len(self._items))]
        predictions = self._task.predictions(self._examples, self._items, ordered)
        return Evaluated(predictions, self._task.scores(self._examples, predictions), values.mean_loss())

    def _forward(
        self, model: ModelWithHead, chosen: Sequence[int], device: torch.device
    ) -> tuple[Mapping[str, np.ndarray], StepSums]:
        items: list[Item] = [self._items[number] for number in chosen]
        arrays = self._collator(items, np.array(chosen, dtype=np.int64))
        batch, head = on_device(arrays, device), model.head
        assert isinstance(head, TaskHead), "the model was built by a task"
        outputs = head.outputs(model.encoder, batch)
        loss = StepSums.of(head.loss(outputs, batch), head.means)
        return {name: values.float().cpu().numpy() if values.is_floating_point() else values.cpu().numpy()
                for name, values in head.kept(outputs, batch).items()}, loss  # fmt: skip


SPLITS: tuple[Split, ...] = get_args(Split)


@dataclasses.dataclass(frozen=True)
class TaskFiles:
    paths: Mapping[Split, str]  # paths or URLs of the splits that the run has
    content: str  # return value of `content_of`
    model: bytes | None = None  # SentencePiece, for models of subwords

    @property
    def vocabulary(self) -> Vocabulary | None:
        return None if self.model is None else Vocabulary.load(self.model)


def content_of(paths: Mapping[Split, str]) -> str:
    """Return 32 hex digits that change with the content of any split's file, or the name of a dataset of the hub."""
    digest = hashlib.blake2b(digest_size=16)
    for split in SPLITS:
        if split in paths:
            digest.update(f"\n{split} ".encode())
            for part in parallel_paths(paths[split]) or (paths[split],):
                is_dataset = part.startswith(SCHEME)
                digest.update(hashlib.blake2b(part.encode()).digest() if is_dataset else hash_of(part))
    return digest.hexdigest()


# Of the rules in this file: a run only resumes under the version it started with.
VERSION = 1
POOL = 50  # batches that are sorted together, at most an epoch of them


class SizedOrder:
    def __init__(self, sizes: Sequence[int] | np.ndarray, *, batch: int, seed: int) -> None:
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._batch, self._seed = batch, seed
        self._pool_batches = max(1, min(POOL, len(self._sizes) // batch))
        self._pool = functools.lru_cache(maxsize=4)(self._make_pool)

    def items(self, batch: int) -> np.ndarray:
        pool, within = divmod(batch, self._pool_batches)
        return self._pool(pool)[within]

    def _make_pool(self, pool: int) -> np.ndarray:
        count = self._pool_batches * self._batch
        drawn = np.arange(pool * count, (pool + 1) * count, dtype=np.int64)
        size = len(self._sizes)
        epochs = random.derive(random.key(self._seed, "epochs"), drawn // size)
        items = random.permute(drawn % size, np.full(count, size), epochs)
        items = items[np.argsort(self._sizes[items], kind="stable")].reshape(-1, self._batch)
        keys = np.full(len(items), random.key(self._seed, "batches of a pool", pool))
        return items[random.permute(np.arange(len(items)), np.full(len(items), len(items)), keys)]


class ItemLoader(StepLoader):
    """A loader of batches of the items of a task. `content` is the fingerprint of the task's files."""

    def __init__(
        self,
        items: Sequence[Item],
        collator: TaskCollator,
        config: LoopConfig,
        *,
        content: str,
        rank: int,
        world_size: int,
    ) -> None:
        self._items, self._collator, self._batch = items, collator, config.global_batch
        self._order = SizedOrder([item.size for item in items], batch=self._batch, seed=config.seed)
        self._begin, self._end = slice_of(rank, world_size, self._batch)
        self.fingerprint = {
            "data": content,
            "seed": config.seed,
            "global_batch": config.global_batch,
            "length": config.length,
            "items": len(items),
            "order": VERSION,
        }

    def batch(self, step: int) -> Arrays:
        ids = np.arange(step * self._batch + self._begin, step * self._batch + self._end, dtype=np.int64)
        chosen = [self._items[number] for number in self._order.items(step)[self._begin : self._end].tolist()]
        return {**self._collator(chosen, ids), "sample_ids": ids}


PREDICTIONS = "predictions"  # a folder of a run, with a file of JSON lines per split


class TaskSource(Source):
    """The examples of a task, which is fitted to them. Raises UserError if there are none to train on."""

    keeps_best = True

    def __init__(
        self,
        recipe: FinetuneRecipe,
        files: TaskFiles,
        *,
        rank: int,
        world_size: int,
        baselines: Mapping[str, Any] | None = None,
    ) -> None:
        self._recipe, self._files, self._baselines = recipe, files, baselines
        config, task = recipe.train, recipe.task
        self._task: DownstreamTask = task
        self.content, self.vocabulary = files.content, files.vocabulary
        collator = self._task.collator(text_inputs(recipe.model, config.length, self.vocabulary), config.seed)
        self._collator = collator

        # Cached methods would keep this source and all its examples alive until the garbage collector finds
        # them.
        @functools.cache
        def examples(split: Split) -> Sequence[Any]:
            return task.examples(split, files.paths.get(split))

        @functools.cache
        def evaluator(split: Split) -> Evaluator:
            micro_batch = config.micro_batch
            return Evaluator(
                task, collator, examples(split), micro_batch=micro_batch, rank=rank, world_size=world_size
            )

        self._examples, self._evaluator = examples, evaluator
        items = self._collator.items(self._examples("train"), training=True)
        if not items:
            raise UserError(
                f"{files.paths.get('train')}: there is nothing to train on in this file; give another"
            )
        self.loader = ItemLoader(
            items, collator, config, content=self.content, rank=rank, world_size=world_size
        )

    def check(self) -> None:
        """Read the other splits, which raises the errors of files that cannot be evaluated."""
        for split in ("dev", "test"):
            if self._has(split):
                self._evaluator(split)

    def build(self) -> ModelWithHead:
        recipe = self._recipe
        with random_numbers() as seed:
            seed(int(key(recipe.train.seed, "weights")))
            task = ModelWithHead(recipe.model.build(), self._task.build(recipe.model))
        if task.encoder.embedder.learns_characters:
            texts = (text for example in self._examples("train") for text in self._task.texts(example))
            task.encoder.embedder.learn(frequent_characters(texts))
        held_out = self._examples("dev") if self._has("dev") else ()
        self._task.learn(task.head, self._examples("train"), held_out)
        return task

    def validate(self, task: ModelWithHead, device: torch.device, *, equally_many: bool) -> dict[str, float]:
        """Return the development set's metrics, with `validation_main`.

        Raises UserError if it has no labels.
        """
        if not self._has("dev"):
            return {}
        evaluation = self._evaluator("dev")(task, device, equally_many=equally_many)
        if evaluation.metrics is None:
            raise UserError(
                f"{self._files.paths['dev']}: the examples of --dev have no labels to be compared with"
            )
        scores = {f"validation_{name}": value for name, value in evaluation.metrics.values.items()}
        return {"validation_loss": evaluation.loss, **scores, "validation_main": evaluation.metrics.score}

    def selection_loss(self, validation: Mapping[str, float]) -> float:
        score = validation["validation_main"]
        return score if self._task.lower_is_better else -score

    def result(
        self,
        task: ModelWithHead,
        device: torch.device,
        progress: RunProgress,
        folder: Path | None,
        *,
        equally_many: bool,
    ) -> dict[str, Any]:
        scores, only_labels = dict[str, Any](), dict[str, Any]()
        splits: list[Split] = [split for split in SPLITS[1:] if self._has(split)]
        for split in splits:
            evaluation = self._evaluator(split)(task, device, equally_many=equally_many)
            scores[split] = dict(evaluation.metrics.values) if evaluation.metrics is not None else {}
            label = only_label(evaluation.predictions)
            if label is not None:
                only_labels[split] = label
            if folder is not None:
                (folder / PREDICTIONS).mkdir(exist_ok=True)
                lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in evaluation.predictions)
                write_atomically(folder / PREDICTIONS / f"{split}.jsonl", "".join(lines))
        baselines = self._baselines
        if baselines is None and folder is not None:
            baselines = score_baselines(
                self._task, {split: self._examples(split) for split in ("train", *splits)}
            )
        step = self._recipe.train.steps if progress.best_step is None else progress.best_step
        # relative to the run, so that the result does not depend on the run's location
        checkpoint = f"checkpoints/{checkpoints.checkpoint_name(step)}"
        optional = {**(baselines or {}), "only_label": only_labels}
        return {
            "task": self._task.name,
            "best_step": progress.best_step,
            **scores,
            **{name: value for name, value in optional.items() if value},
            "checkpoint": checkpoint,
        }

    def _has(self, split: Split) -> bool:
        return split in self._files.paths or not self._task.needs_files


def only_label(predictions: Iterable[Mapping[str, Any]]) -> Any:
    """Return the label or tag that is predicted everywhere although others are correct, else None."""
    predicted, gold = set[Any](), set[Any]()
    for line in predictions:
        if "tags" in line:
            predicted.update(line["tags"])
            gold.update(line.get("gold", ()))
        elif "label" in line:
            predicted.add(line["label"])
            gold.add(line.get("gold"))
    return predicted.pop() if len(predicted) == 1 < len(gold) else None


def frequent_characters(texts: Iterable[str]) -> np.ndarray:
    """Return all codepoints of texts, int64, the most frequent first.

    Equally frequent ones are in ascending order.
    """
    counts = collections.Counter(itertools.chain.from_iterable(texts))
    ordered = sorted(counts, key=lambda character: (-counts[character], character))
    return np.array([ord(character) for character in ordered], dtype=np.int64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneJob(Job):
    files: TaskFiles
    baselines: Mapping[str, Any] | None = None  # return value of `score_baselines`; None: computed at the end

    def make_loop(
        self, *, rank: int = 0, world_size: int = 1, device: str = "cpu", stop: Stop | None = None
    ) -> TrainingLoop[FinetuneRecipe]:
        source = TaskSource(
            self.recipe, self.files, rank=rank, world_size=world_size, baselines=self.baselines
        )
        return TrainingLoop(self.recipe, source, rank=rank, world_size=world_size, device=device, stop=stop)
