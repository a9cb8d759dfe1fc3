"""What a model costs: parameters, multiply-accumulates, memory, and whether bfloat16 pays here.

B batch, C characters, P targets, U sequence, D width
"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.common.basic import Cost, Dimensions, count_parameters
from tokenfree.train.model.encoder import Encoder, ModelConfig
from tokenfree.train.model.layers.bert import BertLayer

BYTES = 4  # of a float32
OPTIMIZER_MOMENTS = 2  # Adam and LAMB keep two numbers for each parameter


class Memory(NamedTuple):
    """Bytes that one training step in float32 holds when the backward pass begins."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of them, bytes."""
        return sum(self)


def costs(model: ModelConfig, length: int, num_targets: int | None = None) -> list[Cost]:
    """The parts of `model` in the order of the computation, for one example of `length` characters.

    Multiply-accumulates are those of the formulas (dense layers, convolutions, attention over visible pairs), whether
    or not the code finds a cheaper way. With `num_targets` only so many characters are upsampled.
    """
    return _shapes_only(model).costs(length, num_targets)


def forward_multiply_accumulates(model: ModelConfig, length: int, num_targets: int | None = None) -> int:
    """Multiply-accumulates of one forward pass over one example."""
    return sum(cost.multiply_accumulates for cost in costs(model, length, num_targets))


def step_memory(model: ModelConfig, length: int, batch: int, num_targets: int | None = None) -> Memory:
    """The memory of a training step on the CPU, from what autograd keeps in a forward pass without data."""
    encoder = _shapes_only(model)
    with FakeTensorMode(allow_non_fake_inputs=True):
        encoder.to_empty(device="cpu")
        weights = BYTES * count_parameters(encoder)
        return Memory(weights, weights, OPTIMIZER_MOMENTS * weights, _kept(encoder, length, batch, num_targets))


def _kept(encoder: Encoder, length: int, batch: int, num_targets: int | None) -> int:
    own = {parameter.untyped_storage()._cdata for parameter in encoder.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = (storage.nbytes(), tensor)  # the tensor lives on, so that its key stays its own
        return tensor

    codepoints_BC = torch.zeros(batch, length, dtype=torch.int64)
    targets_BP = None if num_targets is None else torch.zeros(batch, num_targets, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        encoder(codepoints_BC, codepoints_BC.bool(), None, targets_BP, _unit_ends(encoder, length, batch))
    return sum(size for size, _ in kept.values())


def _unit_ends(encoder: Encoder, length: int, batch: int) -> Tensor | None:
    """As many units as there is room for, where units are given by the text; int64 [batch, units]."""
    if encoder.config.downsampler.bytes_per_word is None:
        return None
    num_units = encoder.downsampler.num_units(length)
    return (torch.arange(1, num_units + 1) * length // num_units).repeat(batch, 1)


def _shapes_only(model: ModelConfig) -> Encoder:
    with torch.device("meta"):
        return model.build()


_VALUES = {"cpu": 2**17, "cuda": 2**24}  # of the sequences that are timed: so many that the arithmetic takes the time
_UNITS = 64
_PAYS = 1.25  # of a layer; the rest of a step gains less


def bfloat16_speed(dimensions: Dimensions, *, repeats: int = 3) -> float:
    """How many times as fast a BERT layer is in bfloat16 as in float32, on a GPU or by the time of one CPU thread."""
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

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        both = (torch.float32, torch.bfloat16)
        rounds = [[seconds(dtype) for dtype in both] for _ in range(repeats + 1)][1:]  # the first one warms up
    finally:
        torch.set_num_threads(threads)
    float32, bfloat16 = (min(times) for times in zip(*rounds, strict=True))
    return float32 / bfloat16


def told(speed: float) -> str:
    """A speed of `bfloat16_speed` in words."""
    return f"a layer is {speed:.1f} times as fast in bfloat16 as in float32 on this machine"


def advice(speed: float, precision: str) -> str:
    """What a speed of `bfloat16_speed` says to a recipe with this `train.precision`; empty where nothing changes."""
    if speed >= _PAYS and precision == "float32":
        return "set train.precision to bfloat16 to train faster"
    if speed < _PAYS and precision == "bfloat16":
        return "set train.precision to float32: it is no slower"
    return ""
