"""The learning rate of each step, and parts of a model with a multiple of it."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn

Schedule = Literal["linear", "bert"]


def learning_rate(step: int, *, steps: int, peak: float, warmup: float, schedule: Schedule = "linear") -> float:
    """The rate of the update numbered `step` (from 0): linear up to `peak` in a share `warmup` of `steps`, then to 0.

    The rate would reach 0 at the update numbered `steps`, which is the first that is not done.

    The schedule `bert`, of the code of BERT and CANINE (spec: canine, section 4.4), falls from `peak` at the first
    update on, but is overridden by the rise from 0 towards `peak` while that lasts. So the first update has a rate of
    0, and where the rise ends the rate jumps down, to the share of `peak` that is then left.
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
