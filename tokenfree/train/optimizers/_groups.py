"""Which parameters decay, and which are several tensors in one: shared by all optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import nn


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices, tables and kernels decay; biases, LayerNorm gains and other vectors do not."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in parameters if parameter.ndim >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]


@runtime_checkable
class Stacked(Protocol):
    """A part of a model whose parameters are several tensors each, or scalars."""

    @property
    def stacked(self) -> Mapping[str, int]:
        """Of its own parameters, by name: see `stacked_tensors`."""
        ...


def stacked_tensors(module: nn.Module) -> dict[str, int]:
    """How many tensors of equal size a parameter is, one after another in its first dimension, by its full name.

    Parts of a model that are `Stacked` map names of their own parameters to numbers, such as eight for the tables of
    eight hashes, and 0 for scalars that begin at zero, such as those that DIET-REL adds to logits. A parameter that is
    not named is one tensor.
    """
    return {
        f"{prefix}.{name}" if prefix else name: count
        for prefix, part in module.named_modules()
        if isinstance(part, Stacked)
        for name, count in part.stacked.items()
    }
