"""Dropout for the CPU as well: the masks of four values from one draw, and one byte kept for each value."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

STEPS = 2**16  # the rate is rounded to a multiple of 1 / STEPS


class Dropout(nn.Module):
    """nn.Dropout, by way of `dropout`."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape, with values set to 0 in training."""
        return dropout(x, self.rate, self.training)


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """`x` of any shape, in training with about `rate` of its values 0 and the others scaled up (arXiv 1207.0580).

    PyTorch's dropout draws one float32 for each value and keeps it for the backward pass. On the CPU that was 15%
    of the training step of CANINE base, and with the attention weights a third of its activations.
    """
    if not training or rate == 0:
        return x
    if not draws_here(x):
        return F.dropout(x, rate)
    return _Dropout.apply(x, *_keep(x, rate))  # pyright: ignore[reportReturnType]


def average(weights: Tensor, values: Tensor, rate: float) -> Tensor:
    """dropout(weights) @ values, [..., Q, K] by [..., K, E], of which only the mask is kept beside the operands."""
    return _Average.apply(weights, values, *_keep(weights, rate))  # pyright: ignore[reportReturnType]


def draws_here(x: Tensor) -> bool:
    """Whether `x` is on the CPU and not under compilation, where the kernels of PyTorch are left alone."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _keep(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Which values of `x` stay (bool), and the factor that makes up for the others."""
    threshold = min(max(round(rate * STEPS), 1), STEPS - 1)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    numbers = draws.view(torch.int16)[: x.numel()].view(x.shape)
    return numbers >= threshold - STEPS // 2, STEPS / (STEPS - threshold)


def _only(x: Tensor, keep: Tensor) -> Tensor:
    """`x` where it is kept, 0 elsewhere. A product would turn the mask into numbers first, and take thrice as long."""
    return torch.where(keep, x, 0.0)


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
        of_weights = (gradient @ values.transpose(-2, -1)).mul_(keep)
        return of_weights, of_values, None, None
