"""AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101), in PyTorch's fused form."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from tokenfree.core.settings import settings
from tokenfree.train.optimizers.base import AdamConfig, parameter_groups


@settings
class Config(AdamConfig):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).

    The learning rate scales the weight decay.
    """

    name: Literal["adamw"] = "adamw"
    epsilon: Annotated[float, Field(gt=0)] = 1e-8

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameter_groups(module, self.weight_decay),
            lr=0.0,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,  # four to six times as fast as the default on a CPU
        )
