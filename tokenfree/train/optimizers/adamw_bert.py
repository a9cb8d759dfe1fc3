# pyright: reportPrivateImportUsage=false
"""AdamW as in BERT's code, with which CANINE was fine-tuned: without bias correction of the moments."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.train.optimizers.base import AdamConfig, MomentOptimizer, Moments, parameter_groups


@settings
class Config(AdamConfig):
    """AdamW without bias correction of the moments, as in the code of BERT and CANINE; for fine-tuning.

    With these betas the first step is 3.2 times as large as with `adamw`; they converge after some thousand
    steps.
    """

    name: Literal["adamw_bert"] = "adamw_bert"

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        groups = parameter_groups(module, self.weight_decay)
        return BertAdamW(groups, betas=(self.beta1, self.beta2), epsilon=self.epsilon)


class BertAdamW(MomentOptimizer):
    """w -= lr * (m / (sqrt(v) + epsilon) + decay * w), with uncorrected moments m and v."""

    def update(self, parameters: list[Tensor], moments: Moments, group: dict[str, Any]) -> None:
        denominators = torch._foreach_sqrt(moments.squares)
        torch._foreach_add_(denominators, group["epsilon"])
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_addcdiv_(parameters, moments.means, denominators, value=-group["lr"])
