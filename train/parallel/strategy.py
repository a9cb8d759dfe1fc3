"""How the workers of a run share a step: each with a copy of the model (DDP), or with a part of every tensor
(train/shards.py). Both give the losses of one worker alone, to rounding.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from train.state import whole


class Alone:
    """One worker with the whole model; and what workers that share a step do otherwise.

    `module` is what to call for a loss with gradients. Where `together` is set, workers must call the model equally
    often, and make snapshots of it at the same time: each holds a part.
    """

    together = False

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def exchange(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """The context of one micro batch; only the `last` one of a step exchanges gradients."""
        return contextlib.nullcontext()

    def agree(self, wish: bool) -> bool:
        """Rank 0's wish, on all workers that act together; on others their own."""
        return wish

    def settle(self) -> None:
        """Keep nothing gathered: the parameters are about to be changed, or were."""


class Copies(Alone):
    """DDP: every worker has all of the model."""

    def __init__(self, module: nn.Module) -> None:
        # An encoder's pooler has no gradient under objectives that do not use it, hence `find_unused_parameters`; it
        # also keeps the buckets of the exchange the same from the first step on, which resuming bit for bit relies on.
        super().__init__(
            DistributedDataParallel(
                module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        )

    def exchange(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        assert isinstance(self.module, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.module.no_sync()


def share(module: nn.Module, layers: list[nn.Module], *, sharded: bool, world_size: int, device: torch.device) -> Alone:
    """`module`, whose deep stack is `layers`, for this worker among `world_size` of the default process group."""
    if sharded:
        from train.shards import Shards  # what it imports takes a second, at each start of a worker

        return Shards(module, layers, device)
    return Copies(module) if world_size > 1 else Alone(module)


def gradient_norm(gradients: list[Tensor]) -> float:
    """The 2-norm over all gradients, whatever part of them this worker holds."""
    return whole(torch.nn.utils.get_total_norm(gradients)).item()
