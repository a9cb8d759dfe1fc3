# pyright: reportPrivateImportUsage=false
"""What every optimizer has: parameter groups, moments and the learning rate of each step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices, tables and kernels decay; biases, LayerNorm gains and other vectors do not."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in parameters if parameter.ndim >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def stacked_tensors(module: nn.Module) -> dict[str, int]:
    """Return the number of tensors of equal size that a parameter stacks in its first dimension, by its full name.

    Parts of a model map names of their parameters to numbers in `stacked`: eight for the tables of eight hashes, 0 for
    scalars that begin at zero. Parameters that are not named are one tensor.
    """
    return {
        f"{prefix}.{name}" if prefix else name: count
        for prefix, part in module.named_modules()
        for name, count in getattr(part, "stacked", {}).items()
    }


class Moments(NamedTuple):
    """Of the parameters of a group that have gradients."""

    steps: int  # that they were updated, this one included
    means: list[Tensor]
    squares: list[Tensor]


class MomentOptimizer(torch.optim.Optimizer):
    """Keeps the moments of every parameter, as AdamW's; `update` of a subclass moves the parameters of a group."""

    def __init__(self, groups: Any, *, betas: tuple[float, float], epsilon: float, **defaults: Any) -> None:
        super().__init__(groups, {"lr": 0.0, "betas": betas, "epsilon": epsilon, "weight_decay": 0.0, **defaults})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every parameter that has a gradient."""
        assert closure is None, "the loop computes the gradients itself"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self.update(parameters, self._moments(parameters, *group["betas"]), group)

    def update(self, parameters: list[Tensor], moments: Moments, group: dict[str, Any]) -> None:
        """Move the parameters of a group in place."""
        raise NotImplementedError

    def _moments(self, parameters: list[Tensor], beta1: float, beta2: float) -> Moments:
        states = [self._state(parameter) for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        for state in states:
            state["step"] += 1
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        # A parameter that has a gradient once has one at every step.
        return Moments(int(states[0]["step"].item()), means, squares)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class OptimizerConfig(ABC):
    """The `Config` of a file in this package."""

    @abstractmethod
    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """Return an optimizer over the parameters of `module`; the loop sets `lr` before every step.

        Its state is kept by parameter and by the slots `step`, `exp_avg` and `exp_avg_sq`.
        """

    def rules(self) -> Mapping[str, Sequence[str]]:
        """Return how its rules have changed: see `tokenfree.train.objectives.base.Objective.rules`."""
        return {}


@settings
class AdamConfig(OptimizerConfig):
    """The settings that all optimizers with the moments of Adam have.

    Attributes:
        weight_decay: share of a weight that it loses in a step, times the learning rate; of matrices only.
        beta1: decay of the running mean of the gradients.
        beta2: decay of the running mean of their squares.
        epsilon: added to the root of that mean.
    """

    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6


Schedule = Literal["linear", "bert"]


def learning_rate(step: int, *, steps: int, peak: float, warmup: float, schedule: Schedule = "linear") -> float:
    """The rate of the update numbered `step` (from 0): linear up to `peak` in a share `warmup` of `steps`, then to 0.

    The schedule `bert`, of the code of BERT and CANINE, falls from `peak` at the first update on, but is overridden by
    the rise from 0 while that lasts: where the rise ends, the rate jumps down.
    """
    if schedule == "bert":
        rising = int(warmup * steps)
        return peak * (step / rising if step < rising else 1 - step / steps)
    rising = math.ceil(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    return peak * (steps - step) / (steps - rising)


def scale_rate(optimizer: torch.optim.Optimizer, module: nn.Module, factor: float) -> None:
    """Move the parameters of `module` into groups whose `rate_factor` the loop multiplies the learning rate by."""
    chosen = set(module.parameters())
    for group in list(optimizer.param_groups):
        moved = [parameter for parameter in group["params"] if parameter in chosen]
        if moved:
            group["params"] = [parameter for parameter in group["params"] if parameter not in chosen]
            optimizer.add_param_group({**group, "params": moved, "rate_factor": factor})
