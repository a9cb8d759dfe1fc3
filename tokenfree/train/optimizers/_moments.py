# pyright: reportPrivateImportUsage=false
"""What optimizers with two moments share: their state, and the running means of the gradients and of their squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Of the parameters of a group that have gradients."""

    steps: int  # that they were updated, this one included
    means: list[Tensor]
    squares: list[Tensor]


class MomentOptimizer(torch.optim.Optimizer):
    """Keeps the moments of every parameter; `update` of a subclass moves the parameters of a group.

    State of a parameter: `step`, `exp_avg`, `exp_avg_sq`, as AdamW's.

    Args:
        groups: as torch takes them, each with its `weight_decay`.
        betas: the decays of the two running means.
        epsilon: added to the root of the second.
        defaults: what else groups have.
    """

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
