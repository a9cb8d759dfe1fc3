"""How the workers of a run share a step: each with a copy of the model (DDP), or with a part of every tensor
(train/parallel/fsdp.py). Both give the losses of one worker alone, to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tokenfree.train.parallel.ddp import DataParallel
from tokenfree.train.parallel.full_state import whole
from tokenfree.train.parallel.single import SingleWorker


def share(
    module: nn.Module, layers: list[nn.Module], *, sharded: bool, world_size: int, device: torch.device
) -> SingleWorker:
    """`module`, whose deep stack is `layers`, for this worker among `world_size` of the default process group."""
    if sharded:
        from tokenfree.train.parallel.fsdp import FullyShardedDataParallel  # its imports take a worker a second

        return FullyShardedDataParallel(module, layers, device)
    return DataParallel(module) if world_size > 1 else SingleWorker(module)


def gradient_norm(gradients: list[Tensor]) -> float:
    """The 2-norm over all gradients together; of gradients in parts, that of the whole, which all workers must ask."""
    return whole(torch.nn.utils.get_total_norm(gradients)).item()
