"""Hours, bytes and memory of a pretraining run by formula."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Arrays
from tokenfree.train.config import PretrainRecipe, TrainConfig
from tokenfree.train.data.loader import Loader
from tokenfree.train.data.mixture import Data, load_data_manifest, load_data_vocabulary
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.step import Meter, pretraining_task
from tokenfree.train.model.costs import BYTES, OPTIMIZER_MOMENTS, Memory

_SAMPLED = 256  # examples of the data whose shapes are counted


@dataclass(frozen=True)
class Work:
    """The work of a run.

    Attributes:
        parameters: of the encoder with the head of its objective.
        head_parameters: of these.
        example_flops: floating point operations of an example, forward and backward.
        targets: of an example.
        classes: what a head's largest matrix chooses from.
        data_bytes: of all shards, None without data.
        epochs: how often the run goes through the text, None without data.
        source: what the shapes were taken from.
    """

    parameters: int
    head_parameters: int
    example_flops: float
    targets: float
    classes: int
    data_bytes: int | None
    epochs: float | None
    source: str


def work_of(recipe: PretrainRecipe, data: Data | None) -> Work:
    """The work of `recipe` on `data`, or on full windows with as many targets as there can be.

    Raises:
        UserError: the data cannot be read.
    """
    train, most = recipe.train, recipe.objective.max_predictions
    if data is None:
        needed = recipe.objective.vocabulary_size(recipe.model)
        size = PreprocessConfig().vocabulary.size if needed is None else needed
        source = f"full windows of {train.length:,} with {most} targets" + (f", {size:,} subwords" if size else "")
        arrays: Arrays = {
            "codepoints": np.zeros((1, train.length), np.int64),
            "target_mask": np.ones((1, most), np.bool_),
        }
        data_bytes = epochs = None
    else:
        manifest, vocabulary = load_data_manifest(data), load_data_vocabulary(data)
        size = vocabulary.size if vocabulary is not None else 0
        arrays = sampled(recipe, data, vocabulary)
        source = f"{_SAMPLED} examples of {data}"
        data_bytes = sum(shard.bytes for split in manifest.splits.values() for shard in split.shards)
        epochs = train.steps * train.global_batch / manifest.splits["train"].rows
    with torch.device("meta"):
        task = pretraining_task(recipe, size)
    meter = Meter(task.encoder, task.head, device=torch.device("cpu"), precision=train.precision)
    mask = arrays.get("target_mask")
    num_examples = len(arrays["codepoints"])
    of_head = sum(parameter.numel() for parameter in task.head.parameters())
    return Work(
        parameters=sum(parameter.numel() for parameter in task.parameters()),
        head_parameters=of_head,
        example_flops=meter.flops(arrays) / num_examples,
        targets=train.length if mask is None else float(mask.sum()) / num_examples,
        classes=max((parameter.shape[0] for parameter in task.head.parameters()), default=0),
        data_bytes=data_bytes,
        epochs=epochs,
        source=source,
    )


def sampled(recipe: PretrainRecipe, data: Data, vocabulary: Vocabulary | None) -> Arrays:
    """Return the arrays of some examples of `data`, whose shapes stand for all."""
    train = recipe.train
    collator = recipe.objective.collator(vocabulary, train.length, train.seed)
    loader = Loader(
        data, global_batch=_SAMPLED, seed=train.seed, smoothing=train.smoothing, streams=1, collator=collator
    )
    return loader.batch(0)


NETWORK = 100e9 / 8  # bytes a second between nodes: 100 Gbit/s, assumed
LINKS = 300e9  # bytes a second between the GPUs of a node: half of what the A100's NVLink is said to do, assumed
# Measured: bytes that a step leaves in metrics.jsonl and in TensorBoard's file.
METRICS_BYTES, TENSORBOARD_BYTES = 340, 550
_HEAD_COPIES = 3  # logits, their logarithms and the gradient of these, of each target
_TIMED_CHARACTERS, _TIMED_STEPS = 4096, 3  # of a step, and steps after the first one
_PASSES = 3  # a backward pass is two products for each one of the forward pass


@dataclass(frozen=True)
class WorkerLayout:
    """Where a run is to train: `devices` in all, a worker each, on `nodes`."""

    devices: int
    nodes: int


def exchange_seconds(work: Work, layout: WorkerLayout) -> float:
    """Seconds in which the gradients of a step are added up by a ring, none of it hidden behind the arithmetic."""
    speed = NETWORK if layout.nodes > 1 else LINKS
    return 2 * (layout.devices - 1) / layout.devices * BYTES * work.parameters / speed


def run_seconds(train: TrainConfig, step: float, example: float) -> float:
    """Seconds of a run, start and checkpoints left out.

    Args:
        train: of the recipe.
        step: seconds of a step.
        example: seconds of an example of a step, on all devices together.
    """
    validations = train.steps // train.validate_every_steps + (train.steps % train.validate_every_steps > 0)
    return train.steps * step + validations * train.validation_windows * example / _PASSES


def measured_seconds(recipe: PretrainRecipe, data: Data) -> float:
    """Return the seconds of a run on this machine, by steps of a few examples that are timed here."""
    train = recipe.train
    examples = min(train.global_batch, max(1, _TIMED_CHARACTERS // train.length))
    few = {"steps": 1 + _TIMED_STEPS, "global_batch": examples, "micro_batch": None, "streams": 1}
    device = "cuda" if torch.cuda.is_available() and train.device != "cpu" else "cpu"
    loop = Loop(replace(recipe, train=replace(train, **few)), data, device=device)
    seconds: list[float] = []
    loop.train_until(1 + _TIMED_STEPS, lambda line: seconds.append(line["seconds"]))
    example = sum(seconds[1:]) / _TIMED_STEPS / examples
    return run_seconds(train, example * train.global_batch, example)


def device_memory(train: TrainConfig, work: Work, encoder: Memory, examples: int, layout: WorkerLayout) -> Memory:
    """Bytes that one device holds at the most, without what its process and libraries take.

    Args:
        train: of the recipe.
        work: of the run.
        encoder: of a step with `examples` examples, see `tokenfree.train.model.costs.step_memory`.
        examples: held at once by a device.
        layout: the devices; with train.parallel fsdp each holds a part of the weights, gradients and moments.
    """
    parts = layout.devices if train.parallel == "fsdp" else 1
    weights = BYTES * work.parameters // parts
    averages = 0 if train.ema_decay is None else weights
    head = round(_HEAD_COPIES * BYTES * examples * work.targets * work.classes)
    return Memory(weights, weights, OPTIMIZER_MOMENTS * weights + averages, encoder.activations + head)


def checkpoint_bytes(train: TrainConfig, work: Work) -> int:
    """Bytes of one checkpoint: weights, moments and the average of the weights where there is one."""
    return BYTES * work.parameters * (1 + OPTIMIZER_MOMENTS + (train.ema_decay is not None))


def num_checkpoints(train: TrainConfig) -> int:
    """Checkpoints on disk at the end: the newest, and the best."""
    made = -(-train.steps // train.checkpoint_every_steps)
    return min(made, train.keep_checkpoints + 1)


def metrics_bytes(train: TrainConfig) -> int:
    """Bytes of metrics.jsonl and TensorBoard's file."""
    return train.steps * (METRICS_BYTES + TENSORBOARD_BYTES)
