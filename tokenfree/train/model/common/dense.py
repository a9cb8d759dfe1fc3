"""Dense layers that use all of the CPU: on AMD, MKL computes at half the width that oneDNN does."""

import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

MIN_PRODUCTS = 2**21  # multiply-accumulates; below, the call costs more than the wider instructions save


class Dense(nn.Linear):
    """nn.Linear, by way of `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """x W^T + b, [..., in_features] to [..., out_features]."""
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, as F.linear, to rounding. Which library computes it depends on the CPU and on shapes alone.

    `x` is [..., in], `weight` [out, in], `bias` [out]: what comes out is [..., out].

    PyTorch hands float32 products to MKL, which knows AVX-512 on Intel only. Measured on an EPYC (Zen 5), one thread,
    all three products of training: 114 GFLOP/s by MKL, 226 by oneDNN, which PyTorch carries as well.
    """
    if torch.compiler.is_compiling() or not _gains(x, weight):
        return F.linear(x, weight, bias)
    return _OneDnnLinear.apply(x, weight, bias)


def _gains(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() > 1
        and x[..., 0].numel() * weight.numel() >= MIN_PRODUCTS
        and not torch.is_autocast_enabled("cpu")
        and mkl_is_slow()
    )


@functools.cache
def mkl_is_slow() -> bool:
    """Whether this CPU has AVX-512 and is not Intel's. A rule and not a trial, so that results never vary."""
    cpuinfo = Path("/proc/cpuinfo")
    usable = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not usable or not torch.backends.mkl.is_available() or not cpuinfo.is_file():
        return False
    text = cpuinfo.read_text()
    return "avx512f" in text and "GenuineIntel" not in text


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.t(), None).unflatten(0, x.shape[:-1]) if needs_x else None,
            _product(gradient.t(), x.flatten(0, -2).t(), None) if needs_weight else None,
            gradient.sum(dim=0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
