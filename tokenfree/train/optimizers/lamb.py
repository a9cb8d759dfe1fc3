# pyright: reportPrivateImportUsage=false
"""LAMB (You et al., arXiv 1904.00962, algorithm 2): Adam with steps scaled to the norm of each tensor."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.optimizers.base import (
    AdamConfig,
    MomentOptimizer,
    Moments,
    parameter_groups,
    part,
    stacked_tensors,
    whole,
)

Tensors = list[Tensor] | tuple[Tensor, ...]


@settings
class Config(AdamConfig):
    """LAMB (You et al., arXiv 1904.00962, algorithm 2) with the constants that CANINE inherits from BERT.

    Weight decay is part of the scaled update.

    Attributes:
        weight_decay: share of a weight that is added to its update before scaling; applies to matrices only.
    """

    name: Literal["lamb"] = "lamb"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        names = {parameter: name for name, parameter in module.named_parameters()}
        stacked = stacked_tensors(module)
        groups: dict[tuple[float, int], list[nn.Parameter]] = {}
        for group in parameter_groups(module, self.weight_decay):
            for parameter in group["params"]:
                tensors = stacked.get(names[parameter], 1) if parameter.ndim >= 2 else 0
                groups.setdefault((group["weight_decay"], tensors), []).append(parameter)
        return Lamb(
            [
                {"params": of, "weight_decay": decay, "tensors": tensors}
                for (decay, tensors), of in groups.items()
            ],
            betas=(self.beta1, self.beta2),
            epsilon=self.epsilon,
        )


class Lamb(MomentOptimizer):
    """u = m / (sqrt(v) + epsilon) + decay * w, with bias-corrected moments; w -= lr * (|w| / |u|) * u.

    The trust ratio |w| / |u| is 1 if either norm is 0. As in the authors' code, it is also 1 for biases,
    gains and scalars: those that are initially zero would hardly grow. The `tensors` of a group is the number
    of tensors that its parameters stack, each with its own ratio. 0 means that the ratio is 1.
    """

    def update(self, parameters: list[Tensor], moments: Moments, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        denominators = torch._foreach_div(moments.squares, 1 - beta2**moments.steps)
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, group["epsilon"])
        updates = torch._foreach_div(moments.means, 1 - beta1**moments.steps)
        torch._foreach_div_(updates, denominators)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        _scale(updates, parameters, group["tensors"], -group["lr"])
        torch._foreach_add_(parameters, updates)


def _scale(updates: Tensors, parameters: Tensors, tensors: int, factor: float) -> None:
    if tensors == 0:
        torch._foreach_mul_(updates, factor)
    elif tensors == 1:
        norms = (torch.stack(torch._foreach_norm(group)) for group in (parameters, updates))
        torch._foreach_mul_(updates, list((_ratios(*norms) * factor).unbind()))
    else:
        for update, parameter in zip(updates, parameters, strict=True):
            ratios = _ratios(_norms(parameter, tensors), _norms(update, tensors))
            of_rows = (ratios * factor).repeat_interleave(len(update) // tensors)
            update.mul_(part(of_rows, like=update).reshape(-1, *[1] * (update.ndim - 1)))


def _ratios(weight_norms: Tensor, update_norms: Tensor) -> Tensor:
    usable = (weight_norms > 0) & (update_norms > 0)
    return torch.where(usable, weight_norms / update_norms.where(usable, torch.ones_like(update_norms)), 1.0)


def _norms(stack: Tensor, tensors: int) -> Tensor:
    """Return the norms of the tensors in a stack, [tensors], even if this worker holds only a part of the stack."""
    of_rows = whole(torch.linalg.vector_norm(stack.flatten(1), dim=1))
    return torch.linalg.vector_norm(of_rows.unflatten(0, (tensors, -1)), dim=1)
