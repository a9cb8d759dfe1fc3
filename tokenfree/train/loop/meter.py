"""Throughput and utilisation: FLOPs of the model against the measured peak of the device."""

import time

import torch

from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.common.basic import linear
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.objectives.base import Head
from tokenfree.train.torch_state import uses_bfloat16

_PASSES = 3  # a backward pass has two products for each one of the forward pass


class Meter:
    """Utilisation of one worker's device by training steps. The device is measured on first use."""

    def __init__(self, encoder: Encoder, head: Head, *, device: torch.device, precision: str) -> None:
        self._encoder = encoder
        self._head_products = head.multiply_accumulates()
        self._device = device
        self._dtype = torch.bfloat16 if uses_bfloat16(precision, device) else torch.float32
        self._peak: float | None = None
        self._products: dict[int, tuple[int, int]] = {}

    def utilisation(self, arrays: Arrays, seconds: float) -> float:
        """Return the share (0 to 1) of the measured peak in a step over this worker's `arrays` that took `seconds`."""
        if self._peak is None:
            self._peak = peak(self._device, self._dtype)
        # A step can be faster than the measured products, which other processes may have slowed down.
        return min(1.0, self.flops(arrays) / seconds / self._peak)

    def flops(self, arrays: Arrays) -> int:
        """Return the floating-point operations of a step over `arrays`, forward and backward."""
        num_examples, length = arrays["codepoints"].shape
        if length not in self._products:
            self._products[length] = self._count(length)
        of_example, of_target = self._products[length]
        return 2 * _PASSES * (of_example * num_examples + of_target * int(arrays["target_mask"].sum()))

    def _count(self, length: int) -> tuple[int, int]:
        """Return the multiply-accumulates of the forward pass for an example without targets, and for each target."""
        none, one = (
            sum(cost.multiply_accumulates for cost in self._encoder.costs(length, n)) for n in (0, 1)
        )
        return none, one - none + self._head_products


def peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.1) -> float:
    """Return the floating-point operations per second of the fastest large matrix product within `seconds`."""
    size = 8192 if device.type == "cuda" else 512
    # An H100 multiplies equal numbers 3% faster than random ones.
    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.rand(size, size, generator=generator, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    until = time.perf_counter() + seconds
    # They may use different libraries.
    products = [torch.mm, linear]
    while time.perf_counter() < until:
        products.reverse()
        began = time.perf_counter()
        products[0](left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best
