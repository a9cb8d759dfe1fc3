"""Estimate hours, bytes and memory of a pretraining run by formula, and measure the speed of bfloat16."""

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Arrays
from tokenfree.train.config import PretrainRecipe, TrainConfig
from tokenfree.train.data.loader import Loader
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import load_data_manifest, load_data_vocabulary
from tokenfree.train.loop.meter import Meter
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.step import pretraining_task
from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.common.basic import Dimensions, count_parameters
from tokenfree.train.model.costs import BYTES, OPTIMIZER_MOMENTS, Memory
from tokenfree.train.model.layers.bert import BertLayer
from tokenfree.train.torch_state import default_settings

_SAMPLED = 256  # number of examples whose shapes represent the data


@dataclass(frozen=True)
class Work:
    parameters: int  # of the encoder and the head of its objective
    example_flops: float  # floating point operations per example, forward and backward
    targets: float  # mean number per example
    classes: int  # rows of the head's largest matrix, such as subwords
    data_bytes: int | None  # of all shards; None without data
    epochs: float | None  # passes over the training split; None without data
    source: str  # description of the examples whose shapes were used


def work_of(recipe: PretrainRecipe, data: Data | None) -> Work:
    """Return the work of `recipe` on `data` or on full windows.

    Raises UserError if the data cannot be read.
    """
    train, max_predictions = recipe.train, recipe.objective.max_predictions
    if data is None:
        needed = recipe.objective.vocabulary_size(recipe.model)
        size = PreprocessConfig().vocabulary.size if needed is None else needed
        source = f"full windows of {train.length:,} with {max_predictions} targets" + (
            f", {size:,} subwords" if size else ""
        )
        arrays: Arrays = {
            "codepoints": np.zeros((1, train.length), np.int64),
            "target_mask": np.ones((1, max_predictions), np.bool_),
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
    num_examples = len(arrays["codepoints"])
    return Work(
        parameters=count_parameters(task),
        example_flops=meter.flops(arrays) / num_examples,
        targets=float(arrays["target_mask"].sum()) / num_examples,
        classes=max((parameter.shape[0] for parameter in task.head.parameters()), default=0),
        data_bytes=data_bytes,
        epochs=epochs,
        source=source,
    )


def sampled(recipe: PretrainRecipe, data: Data, vocabulary: Vocabulary | None) -> Arrays:
    train = recipe.train
    collator = recipe.objective.collator(vocabulary, train.length, train.seed)
    loader = Loader(
        data, global_batch=_SAMPLED, seed=train.seed, smoothing=train.smoothing, streams=1, collator=collator
    )
    return loader.batch(0)


NETWORK = 100e9 / 8  # bytes per second between nodes: 100 Gbit/s, assumed
# Bytes per second between the GPUs of a node, assumed: half of the published speed of the A100's NVLink.
LINKS = 300e9
# Measured: bytes per step in metrics.jsonl and in TensorBoard's file.
METRICS_BYTES, TENSORBOARD_BYTES = 340, 550
_HEAD_COPIES = 3  # for each target: logits, log-probabilities and their gradient
# Characters per timed step, and number of steps after the first one.
_TIMED_CHARACTERS, _TIMED_STEPS = 4096, 3
_PASSES = 3  # the backward pass takes two matrix products for each one of the forward pass


def exchange_seconds(work: Work, devices: int, nodes: int) -> float:
    """Return the seconds per step for a ring all-reduce of the gradients, without any overlap with computation.

    `devices` is their total number, with one worker each, on all `nodes`.
    """
    return 2 * (devices - 1) / devices * BYTES * work.parameters / (NETWORK if nodes > 1 else LINKS)


def run_seconds(train: TrainConfig, step: float, example: float) -> float:
    """Return the seconds of a run, without startup and checkpoints, from the seconds per step and per example."""
    validations = train.steps // train.validate_every_steps + (train.steps % train.validate_every_steps > 0)
    return train.steps * step + validations * train.validation_windows * example / _PASSES


def measured_seconds(recipe: PretrainRecipe, data: Data) -> float:
    train = recipe.train
    examples = min(train.global_batch, max(1, _TIMED_CHARACTERS // train.length))
    few = replace(train, steps=1 + _TIMED_STEPS, global_batch=examples, micro_batch=None, streams=1)
    device = "cuda" if torch.cuda.is_available() and train.device != "cpu" else "cpu"
    loop = Loop(replace(recipe, train=few), data, device=device)
    seconds = [line["seconds"] for line in loop.steps(1 + _TIMED_STEPS)]
    example = sum(seconds[1:]) / _TIMED_STEPS / examples
    return run_seconds(train, example * train.global_batch, example)


def device_memory(train: TrainConfig, work: Work, encoder: Memory, examples: int, devices: int) -> Memory:
    """Return the maximum bytes on one device, without those of the process.

    `encoder` is for `examples` examples.
    """
    weights = BYTES * work.parameters // (devices if train.parallel == "fsdp" else 1)
    averages = 0 if train.ema_decay is None else weights
    head = round(_HEAD_COPIES * BYTES * examples * work.targets * work.classes)
    return Memory(weights, weights, OPTIMIZER_MOMENTS * weights + averages, encoder.activations + head)


def checkpoint_bytes(train: TrainConfig, work: Work) -> int:
    return BYTES * work.parameters * (1 + OPTIMIZER_MOMENTS + (train.ema_decay is not None))


def num_checkpoints(train: TrainConfig) -> int:
    return min(-(-train.steps // train.checkpoint_every_steps), train.keep_checkpoints + 1)


def metrics_bytes(train: TrainConfig) -> int:
    return train.steps * (METRICS_BYTES + TENSORBOARD_BYTES)


# Values of the timed batch: enough that arithmetic dominates the time.
_VALUES = {"cpu": 2**17, "cuda": 2**24}
_UNITS = 64
# Minimum speedup of a layer for which bfloat16 is worthwhile; the rest of a step gains less.
_PAYS = 1.25


def bfloat16_speed(dimensions: Dimensions, *, repeats: int = 3) -> float:
    """Return the speedup of a BERT layer in bfloat16 over float32, on a GPU or else in time of one CPU thread."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layer = BertLayer(dimensions, FullAttention(dimensions.dropout)).to(device)
    batch = max(1, _VALUES[device.type] // (_UNITS * dimensions.width))
    x_BUD = torch.randn(batch, _UNITS, dimensions.width, device=device)
    valid_BU = torch.ones(batch, _UNITS, dtype=torch.bool, device=device)

    def seconds(dtype: torch.dtype) -> float:
        clock = time.perf_counter if device.type == "cuda" else time.process_time
        start = clock()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            loss = layer(x_BUD, valid_BU).float().square().mean()
        loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return clock() - start

    with default_settings(threads=1):
        rounds = [[seconds(torch.float32), seconds(torch.bfloat16)] for _ in range(repeats + 1)]
    # The first round is a warm-up.
    float32, bfloat16 = (min(times) for times in zip(*rounds[1:], strict=True))
    return float32 / bfloat16


def bfloat16_summary(speed: float) -> str:
    fast, slow = ("bfloat16", "float32") if speed >= 1 else ("float32", "bfloat16")
    return f"a layer is {max(speed, 1 / speed):.1f} times as fast in {fast} as in {slow} on this machine"


def advice(speed: float, precision: str) -> str:
    """Return advice on `train.precision` for a result of `bfloat16_speed`; empty if it should stay."""
    if speed >= _PAYS and precision == "float32":
        return "set train.precision to bfloat16 to train faster"
    if speed < _PAYS and precision == "bfloat16":
        return "set train.precision to float32: it is no slower"
    return ""
