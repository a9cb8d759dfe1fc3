"""Which parameters decay: shared by all optimizers."""

from __future__ import annotations

from typing import Any

from torch import nn


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices, tables and kernels decay; biases, LayerNorm gains and other vectors do not."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in parameters if parameter.ndim >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]
