# pyright: reportPrivateImportUsage=false
"""AdamW as in BERT's code, with which CANINE was fine-tuned: without the correction of the moments' bias."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.preprocess.common.settings import settings
from tokenfree.train.optimizers._groups import parameter_groups
from tokenfree.train.optimizers.base import OptimizerDefaults


@settings
class Config(OptimizerDefaults):
    """AdamW without the correction of the moments' bias, as in the code of BERT and CANINE; for fine-tuning.

    With these betas the first step is 3.2 times as long as that of `adamw`; after some thousand steps they are alike.

    Attributes:
        weight_decay: share of a weight that it loses in a step, times the learning rate; of matrices only, at least 0.
        beta1: decay of the running mean of the gradients, 0 to below 1.
        beta2: decay of the running mean of their squares, 0 to below 1.
        epsilon: added to the root of that mean, above 0.
    """

    name: Literal["adamw_bert"] = "adamw_bert"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """An optimizer over the parameters of `module`; the loop sets the learning rate of every step."""
        groups = parameter_groups(module, self.weight_decay)
        return BertAdamW(groups, betas=(self.beta1, self.beta2), epsilon=self.epsilon)


class BertAdamW(torch.optim.Optimizer):
    """w -= lr * (m / (sqrt(v) + epsilon) + decay * w), with the moments m and v as they are.

    State of a parameter: `step`, `exp_avg`, `exp_avg_sq`, as AdamW's.
    """

    def __init__(self, groups: Any, *, betas: tuple[float, float], epsilon: float) -> None:
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
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, group["epsilon"])
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_addcdiv_(parameters, means, denominators, value=-group["lr"])

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state
