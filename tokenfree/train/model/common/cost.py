"""What a part of a model costs: its parameters and multiply-accumulates."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn


class Cost(NamedTuple):
    """One part of a model: shape of its output for one example, parameters, and multiply-accumulates of a forward."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    multiply_accumulates: int


def count_parameters(*modules: nn.Module) -> int:
    """Number of scalars in the parameters of `modules`."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
