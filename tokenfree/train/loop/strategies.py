"""How a model is shared by workers (DDP or FSDP2), compiled, or computed with less memory; for runs that ask for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tokenfree.train.loop.parallel import SingleWorker
from tokenfree.train.model.common.attention import LayerBias
from tokenfree.train.torch_state import set_determinism

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def recompute(layer: nn.Module) -> None:
    """Change a layer of the trunk in place so that backward recomputes it (Chen et al., arXiv 1604.06174)."""
    forward = layer.forward

    def once(units_BUD: Tensor, valid_BU: Tensor, bias: Any, **more: Any) -> Tensor:
        # A bias caches its values for the following layers. Both passes must start with an empty cache.
        return forward(units_BUD, valid_BU, bias.uncached() if isinstance(bias, LayerBias) else bias, **more)

    def forward_twice(units_BUD: Tensor, valid_BU: Tensor, bias: Any = None, **more: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(units_BUD, valid_BU, bias, **more)
        return checkpoint(once, units_BUD, valid_BU, bias, use_reentrant=False, **more)

    layer.forward = forward_twice


def compile_task(task: nn.Module, layers: Iterable[nn.Module], *, in_parts: bool) -> None:
    """Compile `task`, or with `in_parts` each of its `layers`, between which sharded parameters are gathered."""
    # Imported here because it imports many modules.
    import torch._inductor

    set_determinism(torch.get_deterministic_debug_mode())
    for module in layers if in_parts else [task]:
        module.compile()


class DataParallel(SingleWorker):
    """DDP: every worker has the whole model (Li et al., arXiv 2006.15704)."""

    def __init__(self, module: nn.Module) -> None:
        # An encoder's pooler has no gradient under objectives that do not use it, so `find_unused_parameters`
        # is set. It also keeps the buckets of the exchange the same from the first step on, as bit-for-bit
        # resuming requires.
        super().__init__(
            DistributedDataParallel(
                module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        )

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        assert isinstance(self.module, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.module.no_sync()


class FullyShardedDataParallel(SingleWorker):
    """FSDP2: every worker holds a part of each parameter; each of `layers` is gathered alone (arXiv 2304.11277)."""

    is_sharded = True

    def __init__(self, module: nn.Module, layers: list[nn.Module], device: torch.device) -> None:
        # Imported here because they take a second, which only sharded workers need.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        super().__init__(module)
        self._device = device

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        cast("FSDPModule", self.module).set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def broadcast_flag(self, flag: bool) -> bool:
        box = torch.tensor(float(flag), device=self._device)
        dist.broadcast(box, src=0)
        return bool(box)

    def reshard(self) -> None:
        """Free the parameters outside the layers, which stay gathered if no backward pass follows."""
        cast("FSDPModule", self.module).reshard()
