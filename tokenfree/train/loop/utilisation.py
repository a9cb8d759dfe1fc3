"""How much of the device a step uses: arithmetic of the model as it is, against what the device was measured to do."""

from __future__ import annotations

import time

import torch

from tokenfree.train.batches.collator import Arrays
from tokenfree.train.model.common.dense import linear
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.objectives.base import Head

_PASSES = 3  # a backward pass is two products for each one of the forward pass


class Meter:
    """Utilisation of one worker's device by training steps. Measures the device when first asked.

    Args:
        encoder, head: the two parts of what is trained.
        device: where it is.
        precision: `train.precision`, in which the device is measured too.
    """

    def __init__(self, encoder: Encoder, head: Head, *, device: torch.device, precision: str) -> None:
        self._encoder = encoder
        self._head_products = head.multiply_accumulates()
        self._device = device
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._peak: float | None = None
        self._products: dict[int, tuple[int, int]] = {}

    def utilisation(self, arrays: Arrays, seconds: float) -> float:
        """The share (0 to 1) of the measured peak that a step over `arrays`, this worker's, in `seconds` comes to."""
        if self._peak is None:
            self._peak = peak(self._device, self._dtype)
        return self.flops(arrays) / seconds / self._peak

    def flops(self, arrays: Arrays) -> int:
        """Floating-point operations of a step over `arrays`, forward and backward."""
        num_examples, length = arrays["codepoints"].shape
        mask = arrays.get("target_mask")
        num_targets = num_examples * length if mask is None else int(mask.sum())
        if length not in self._products:
            self._products[length] = self._count(length)
        of_example, of_target = self._products[length]
        return 2 * _PASSES * (of_example * num_examples + of_target * num_targets)

    def _count(self, length: int) -> tuple[int, int]:
        """Multiply-accumulates of the forward pass: of an example without targets, and of each target.

        Slots for targets that an example does not have cost nothing here: no use is made of what they are computed for.
        """
        none, one = (sum(cost.multiply_accumulates for cost in self._encoder.costs(length, n)) for n in (0, 1))
        return none, one - none + self._head_products


def peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.1) -> float:
    """Floating-point operations per second of the fastest of several large matrix products, tried for `seconds`."""
    size = 8192 if device.type == "cuda" else 512
    left = torch.ones(size, size, device=device, dtype=dtype)
    right = torch.ones(size, size, device=device, dtype=dtype)
    best = float("inf")
    until = time.perf_counter() + seconds
    products = [torch.mm, linear]  # not always of the same library
    while time.perf_counter() < until:
        products.reverse()
        began = time.perf_counter()
        products[0](left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best
