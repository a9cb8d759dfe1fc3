# pyright: reportPrivateImportUsage=false
"""LAMB (You et al., arXiv 1904.00962, algorithm 2): Adam whose step is scaled to the norm of each tensor."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.optimizers._groups import parameter_groups


@settings
class Config:
    """LAMB with the constants that CANINE inherits from BERT; weight decay is part of the scaled update."""

    name: Literal["lamb"] = "lamb"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """An optimizer over the parameters of `module`; the loop sets the learning rate of every step."""
        return Lamb(parameter_groups(module, self.weight_decay), betas=(self.beta1, self.beta2), epsilon=self.epsilon)


class Lamb(torch.optim.Optimizer):
    """u = m / (sqrt(v) + epsilon) + decay * w, with bias-corrected moments; w -= lr * (|w| / |u|) * u.

    The ratio is 1 where either norm is 0. State of a parameter: `step`, `exp_avg`, `exp_avg_sq`, as AdamW's.
    """

    def __init__(self, groups: Any, *, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-6) -> None:
        super().__init__(groups, {"lr": 0.0, "betas": betas, "epsilon": epsilon, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every parameter that has a gradient."""
        assert closure is None, "the loop computes the gradients itself"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        states = [self._state(parameter) for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        for state in states:
            state["step"] += 1
        count = states[0]["step"].item()  # a parameter that has a gradient once has one at every step
        beta1, beta2 = group["betas"]

        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        denominators = torch._foreach_div(squares, 1 - beta2**count)
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, group["epsilon"])
        updates = torch._foreach_div(means, 1 - beta1**count)
        torch._foreach_div_(updates, denominators)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])

        weight_norms = torch.stack(torch._foreach_norm(parameters))
        update_norms = torch.stack(torch._foreach_norm(updates))
        usable = (weight_norms > 0) & (update_norms > 0)
        ratios = torch.where(usable, weight_norms / update_norms.where(usable, torch.ones_like(update_norms)), 1.0)
        torch._foreach_mul_(updates, list((ratios * -group["lr"]).unbind()))
        torch._foreach_add_(parameters, updates)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state
