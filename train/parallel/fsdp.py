"""FSDP2: workers that hold 1 / N of the parameters, gradients and optimizer state, and gather a layer when they come
to it (Zhao et al., arXiv 2304.11277; torch's `fully_shard`).
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from train.parallel import Alone


class Shards(Alone):
    """Every worker has a part of each parameter; `layers` are gathered one at a time, the rest at once."""

    together = True

    def __init__(self, module: nn.Module, layers: list[nn.Module], device: torch.device) -> None:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)  # in place
        super().__init__(module)
        self._device = device

    def exchange(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        assert isinstance(self.module, FSDPModule)
        self.module.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def agree(self, wish: bool) -> bool:
        box = torch.tensor(float(wish), device=self._device)
        dist.broadcast(box, src=0)
        return bool(box)

    def settle(self) -> None:
        assert isinstance(self.module, FSDPModule)
        self.module.reshard()  # without a backward pass, what lies outside the layers stays gathered
