"""How much of the device a step uses: arithmetic of the model as it is, against what the device was measured to do."""

from __future__ import annotations

import time

import torch
from torch import nn

from train.model import Encoder
from train.objectives.base import Arrays

_PASSES = 3  # a backward pass is two products for each one of the forward pass


class Meter:
    """Utilisation of one worker's device by training steps. Measures the device when first asked."""

    def __init__(self, encoder: Encoder, head: nn.Module, *, device: torch.device, precision: str) -> None:
        self._encoder = encoder
        # Every matrix of a head is applied once to each target.
        self._head_products = sum(parameter.numel() for parameter in head.parameters() if parameter.ndim == 2)
        self._device = device
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._peak: float | None = None
        self._products: dict[tuple[int, int | None], int] = {}

    def utilisation(self, arrays: Arrays, seconds: float) -> float:
        """The share of the measured peak that a step over `arrays` in `seconds` comes to."""
        if self._peak is None:
            self._peak = peak(self._device, self._dtype)
        targets = arrays.get("target_positions")
        shape = (arrays["codepoints"].shape[1], None if targets is None else targets.shape[1])
        if shape not in self._products:
            self._products[shape] = self._count(*shape)
        return 2 * _PASSES * self._products[shape] * len(arrays["codepoints"]) / seconds / self._peak

    def _count(self, length: int, num_targets: int | None) -> int:
        """Multiply-accumulates of the forward pass of one example."""
        encoder = sum(cost.multiply_accumulates for cost in self._encoder.costs(length, num_targets))
        return encoder + self._head_products * (length if num_targets is None else num_targets)


def peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.1) -> float:
    """Floating-point operations per second of the fastest of several large matrix products (a tenth of a second)."""
    size = 8192 if device.type == "cuda" else 512
    left = torch.ones(size, size, device=device, dtype=dtype)
    right = torch.ones(size, size, device=device, dtype=dtype)
    best = float("inf")
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        torch.mm(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best
