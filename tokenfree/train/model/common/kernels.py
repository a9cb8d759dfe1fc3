"""Dense layers, dropout and look-ups that are faster than PyTorch's on a CPU."""

import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# multiply-accumulates; for fewer, the call costs more than the wider instructions save.
MIN_PRODUCTS = 2**21


class Dense(nn.Linear):
    """nn.Linear, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b, equal to F.linear up to rounding: `x` [..., in] and `weight` [out, in] give [..., out].

    Uses oneDNN where it is faster than MKL, depending only on the CPU and the shapes. PyTorch passes float32
    products to MKL, which uses AVX-512 only on Intel. On an EPYC (Zen 5) with one thread, MKL reaches 114
    GFLOP/s, oneDNN 226.
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
    """Return True if this CPU has AVX-512 and is not Intel's.

    A benchmark would make results irreproducible.
    """
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


def cast_for_products(x: Tensor) -> Tensor:
    """Return `x` in the dtype of matrix products.

    Those of the same tensor then share a cast, forward and backward.
    """
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


STEPS = 2**16  # dropout rates are rounded to a multiple of 1 / STEPS


class Dropout(nn.Module):
    """nn.Dropout, computed by `dropout`."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training)


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Apply dropout (arXiv 1207.0580) with masks of int8.

    PyTorch's dropout draws and keeps one float32 per value. On the CPU it took 15% of a training step of
    CANINE base.
    """
    if not training or rate == 0:
        return x
    if not draws_here(x):
        return F.dropout(x, rate)
    return _Dropout.apply(x, *_keep(x, rate))  # pyright: ignore[reportReturnType]


def average(weights: Tensor, values: Tensor, rate: float) -> Tensor:
    """Return dropout(weights) @ values, [..., Q, K] times [..., K, E].

    Saves only the operands and the dropout mask.
    """
    return _Average.apply(weights, values, *_keep(weights, rate))  # pyright: ignore[reportReturnType]


def draws_here(x: Tensor) -> bool:
    """Return True if `x` is on the CPU and not being compiled. Elsewhere PyTorch's own kernels are used."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _keep(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Return a mask of the values of `x`, int8: -1 to keep, 0 to drop.

    Return the factor by which dropout scales.
    """
    threshold = min(max(round(rate * STEPS), 1), STEPS - 1)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    numbers = draws.view(torch.int16)[: x.numel()].view(x.shape)
    # In place, the comparison writes numbers, which takes a seventh of the time that it takes to write bool.
    return numbers.ge_(threshold - STEPS // 2).neg_().to(torch.int8), STEPS / (STEPS - threshold)


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of an element


def _only(x: Tensor, keep: Tensor) -> Tensor:
    """Return `x` where it is kept, 0 elsewhere. `torch.where` takes ten times as long as this bitwise AND."""
    bits = keep.to(_BITS[x.element_size()])
    return bits.bitwise_and_(x.view(bits.dtype)).view(x.dtype)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, keep: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.factor = factor
        return _only(x, keep).mul_(factor)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return _only(gradients[0], keep).mul_(ctx.factor), None, None


class _Average(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights: Tensor, values: Tensor, keep: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(weights, values, keep)
        ctx.factor = factor
        return (_only(weights, keep) @ values).mul_(factor)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weights, values, keep = ctx.saved_tensors
        gradient = gradients[0] * ctx.factor
        of_values = _only(weights, keep).transpose(-2, -1) @ gradient
        of_weights = _only(gradient @ values.transpose(-2, -1), keep)
        return of_weights, of_values, None, None


def embedding(index: Tensor, table_XD: Tensor) -> Tensor:
    """Return F.embedding(index, table_XD). On the CPU, the gradient of `index_select` takes half as long."""
    if not draws_here(table_XD):
        return F.embedding(index, table_XD)
    return table_XD.index_select(0, index.flatten()).unflatten(0, index.shape)
