"""Hours, bytes and memory of a pretraining run by formula."""

from __future__ import annotations

from dataclasses import dataclass

from tokenfree.train.config import TrainConfig
from tokenfree.train.model.costs import BYTES, OPTIMIZER_MOMENTS, Memory
from tokenfree.train.planning.work import Work

NETWORK = 100e9 / 8  # bytes a second between nodes: 100 Gbit/s, assumed
LINKS = 300e9  # bytes a second between the GPUs of a node: half of what the A100's NVLink is said to do, assumed
# Measured: bytes that a step leaves in metrics.jsonl and in TensorBoard's file.
METRICS_BYTES, TENSORBOARD_BYTES = 340, 550
_HEAD_COPIES = 3  # logits, their logarithms and the gradient of these, of each target
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
