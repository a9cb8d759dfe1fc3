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

from tokenfree.train.parallel.single import SingleWorker


class FullyShardedDataParallel(SingleWorker):
    """Every worker has a part of each parameter; `layers` are gathered one at a time, the rest at once.

    Args:
        module: the whole model, on every worker alike; sharded in place.
        layers: its deep stack, parts of `module`.
        device: where the parts live.
    """

    is_sharded = True

    def __init__(self, module: nn.Module, layers: list[nn.Module], device: torch.device) -> None:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        super().__init__(module)
        self._device = device

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """See `SingleWorker.gradient_sync`: FSDP2 has a switch, which stays as it was set."""
        assert isinstance(self.module, FSDPModule)
        self.module.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def broadcast_flag(self, flag: bool) -> bool:
        """Rank 0's `flag`: one number instead of a pickled object, since it is asked in every step."""
        box = torch.tensor(float(flag), device=self._device)
        dist.broadcast(box, src=0)
        return bool(box)

    def reshard(self) -> None:
        """Let go of what lies outside the layers, which without a backward pass stays gathered."""
        assert isinstance(self.module, FSDPModule)
        self.module.reshard()
