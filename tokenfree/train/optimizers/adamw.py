"""AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101), in PyTorch's fused form."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from tokenfree.core.settings import settings
from tokenfree.train.optimizers.base import OptimizerConfig, parameter_groups


@settings
class Config(OptimizerConfig):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2); the weight decay is multiplied by the learning rate
    of the step.

    Attributes:
        weight_decay: share of a weight that it loses in a step, times the learning rate; of matrices only, at least 0.
        beta1: decay of the running mean of the gradients, 0 to below 1.
        beta2: decay of the running mean of their squares, 0 to below 1.
        epsilon: added to the root of that mean, above 0.
    """

    name: Literal["adamw"] = "adamw"
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-8

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameter_groups(module, self.weight_decay),
            lr=0.0,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,  # on a CPU four to six times faster than the default
        )
