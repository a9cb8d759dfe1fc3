# pyright: reportPrivateImportUsage=false
"""Optimizers that torch's compiler is not imported for: a second and more of each process that trains."""

from __future__ import annotations

import inspect
from typing import Any

import torch

_plain: Any = inspect.unwrap  # torch's decorators keep what they wrap


class Uncompiled(torch.optim.Optimizer):
    """First of the bases of an optimizer: its methods are torch's, without what keeps them out of compiled code.

    That imports the compiler at the first call. Steps here are not part of what `train.compile` compiles.
    """

    add_param_group = _plain(torch.optim.Optimizer.add_param_group)
    load_state_dict = _plain(torch.optim.Optimizer.load_state_dict)
    state_dict = _plain(torch.optim.Optimizer.state_dict)
    zero_grad = _plain(torch.optim.Optimizer.zero_grad)


class AdamW(Uncompiled, torch.optim.AdamW):
    """torch's, of which no gradient is taken in turn."""

    step = torch.no_grad()(_plain(torch.optim.AdamW.step))
