"""Whether bfloat16 pays on this machine: a layer is timed in both precisions, since processors differ tenfold.

B batch, U sequence, D width
"""

from __future__ import annotations

import time

import torch

from tokenfree.train.model.common.bert_layer import BertLayer
from tokenfree.train.model.common.dimensions import Dimensions
from tokenfree.train.model.trunk.attention.full import Config as FullAttention

_VALUES = {"cpu": 2**17, "cuda": 2**24}  # of the sequences that are timed: so many that the arithmetic takes the time
_UNITS = 64
_PAYS = 1.25  # of a layer; the rest of a step gains less


def bfloat16_speed(dimensions: Dimensions, *, repeats: int = 3) -> float:
    """How many times as fast a BERT layer is with its products in bfloat16 as in float32, forward and backward.

    On a GPU where there is one. On a CPU in time of one thread, which other work on the machine changes little.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layer = BertLayer(dimensions, FullAttention().build(dimensions, layer=0, num_layers=1)).to(device)
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
