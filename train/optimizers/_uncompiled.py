# pyright: reportPrivateImportUsage=false
"""Optimizers that torch's compiler is not imported for: a second and more of each process that trains."""

from __future__ import annotations

import inspect
from typing import Any

import torch

_whole: Any = inspect.unwrap


class Uncompiled(torch.optim.Optimizer):
    """First of the bases of an optimizer: its methods are torch's, without what keeps them out of compiled code.

    That imports the compiler at the first call. Steps here are not part of what `train.compile` compiles.
    """

    add_param_group = _whole(torch.optim.Optimizer.add_param_group)
    load_state_dict = _whole(torch.optim.Optimizer.load_state_dict)
    state_dict = _whole(torch.optim.Optimizer.state_dict)
    zero_grad = _whole(torch.optim.Optimizer.zero_grad)


class AdamW(Uncompiled, torch.optim.AdamW):
    """torch's, of which no gradient is taken in turn."""

    step = torch.no_grad()(_whole(torch.optim.AdamW.step))
