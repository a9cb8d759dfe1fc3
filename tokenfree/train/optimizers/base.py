# pyright: reportPrivateImportUsage=false
"""Base of all optimizers: parameter groups, moments and the learning rate of each step."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeGuard

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return two groups: matrices, tables and kernels, which decay; and biases, LayerNorm gains and other vectors."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {
            "params": [parameter for parameter in parameters if parameter.ndim >= 2],
            "weight_decay": weight_decay,
        },
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def stacked_tensors(module: nn.Module) -> dict[str, int]:
    """Return the number of equally sized tensors that each named parameter stacks in its first dimension.

    Parts of a model define these in `stacked`: 8 for the tables of eight hashes, 0 for scalars that are
    initially zero.
    """
    return {
        f"{prefix}.{name}" if prefix else name: count
        for prefix, submodule in module.named_modules()
        for name, count in getattr(submodule, "stacked", {}).items()
    }


def is_part(tensor: Tensor | None) -> "TypeGuard[DTensor]":
    """Return True if each worker holds a part of the tensor (`train.parallel: fsdp`)."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor of which each worker holds a part, and any other tensor as it is."""
    return tensor.full_tensor() if is_part(tensor) else tensor


def part(tensor: Tensor, *, like: Tensor | None) -> Tensor:
    """Return this worker's part of a whole tensor that all workers have, as it holds a part of `like`, if it does."""
    if not is_part(like):
        return tensor
    # Slow import (1 s) that only sharded workers need.
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


class Moments(NamedTuple):
    steps: int  # number of updates, including this one
    means: list[Tensor]
    squares: list[Tensor]


class MomentOptimizer(torch.optim.Optimizer):
    """An optimizer with the moments of AdamW. Subclasses update the parameters of a group in `update`."""

    def __init__(self, groups: Any, *, betas: tuple[float, float], epsilon: float) -> None:
        super().__init__(groups, {"lr": 0.0, "betas": betas, "epsilon": epsilon, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert closure is None, "the loop computes the gradients itself"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self.update(parameters, self._moments(parameters, *group["betas"]), group)

    def update(self, parameters: list[Tensor], moments: Moments, group: dict[str, Any]) -> None:
        """Update the parameters of a group in place."""
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
        # Parameters with a gradient have one at every step, so the step count of the first one holds for all.
        return Moments(int(states[0]["step"].item()), means, squares)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class OptimizerConfig(ABC):
    """Base class of the `Config` of each optimizer."""

    @abstractmethod
    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """Return an optimizer with the state `step`, `exp_avg` and `exp_avg_sq` per parameter.

        The loop sets `lr`.
        """


@settings
class AdamConfig(OptimizerConfig):
    """Settings that all optimizers with Adam's moments share.

    Attributes:
        weight_decay: weight decay coefficient, multiplied by the learning rate; applies to matrices only.
        beta1: decay rate of the running mean of gradients.
        beta2: decay rate of the running mean of squared gradients.
        epsilon: constant added to the root of the mean squared gradient.
    """

    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6


Schedule = Literal["linear", "bert"]


def learning_rate(
    step: int, *, steps: int, peak: float, warmup: float, schedule: Schedule = "linear"
) -> float:
    """Return the learning rate of update `step` (from 0): linear to `peak` in a share `warmup` of `steps`, then to 0.

    The schedule `bert` falls from `peak` starting at the first update, and jumps down when the warm-up ends.
    """
    if schedule == "bert":
        rising = int(warmup * steps)
        return peak * (step / rising if step < rising else 1 - step / steps)
    rising = math.ceil(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    return peak * (steps - step) / (steps - rising)


def set_options(optimizer: torch.optim.Optimizer, module: nn.Module, **options: float) -> None:
    """Move the parameters of `module` into groups with these options.

    The loop multiplies the learning rate by `rate_factor`. `epsilon` is that of Adam, under any optimizer's
    name.
    """
    if "epsilon" in options:
        options["eps"] = options["epsilon"]
    chosen = set(module.parameters())
    for group in list(optimizer.param_groups):
        moved = [parameter for parameter in group["params"] if parameter in chosen]
        if moved:
            group["params"] = [parameter for parameter in group["params"] if parameter not in chosen]
            optimizer.add_param_group({**group, "params": moved, **options})
