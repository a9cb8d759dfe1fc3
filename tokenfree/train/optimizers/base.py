"""What every optimizer has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import nn

from tokenfree.preprocess.common.contracts import Contract


class OptimizerConfig(Protocol):
    """The `Config` of a file in this package. What most answer alike they have from `OptimizerDefaults`."""

    @property
    def name(self) -> str:
        """The name of its file."""
        ...

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """An optimizer over the parameters of `module`; the loop sets `lr`, the learning rate, before every step.

        Its state is kept by parameter and by the slots `step`, `exp_avg` and `exp_avg_sq`.
        """
        ...

    def rules(self) -> Mapping[str, Sequence[str]]:
        """How the rules that it follows have changed: see `tokenfree.train.objectives.base.Objective.rules`."""
        ...


class OptimizerDefaults:
    """An optimizer whose rules have not changed."""

    def rules(self) -> Mapping[str, Sequence[str]]:
        """See `OptimizerConfig.rules`."""
        return {}


CONTRACT = Contract(OptimizerConfig, OptimizerDefaults)
