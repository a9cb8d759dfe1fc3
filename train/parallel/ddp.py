"""Workers that each have a copy of the model (torch's DistributedDataParallel)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tokenfree.train.parallel.single import SingleWorker


class DataParallel(SingleWorker):
    """DDP: every worker has all of the model (Li et al., arXiv 2006.15704)."""

    def __init__(self, module: nn.Module) -> None:
        # An encoder's pooler has no gradient under objectives that do not use it, hence `find_unused_parameters`; it
        # also keeps the buckets of the exchange the same from the first step on, which resuming bit for bit relies on.
        with _compiler_not_asked():
            shared = _Uncompiled(
                module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        super().__init__(shared)

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """See `SingleWorker.gradient_sync`: DDP exchanges gradients in each backward pass but where told not to."""
        assert isinstance(self.module, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.module.no_sync()


class _Uncompiled(DistributedDataParallel):
    """torch's own, which tells its compiler of each forward pass, and so imports it; here only if it is there."""

    def _run_ddp_forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            return super()._run_ddp_forward(*inputs, **kwargs)
        return self.module(*inputs, **kwargs)


@contextlib.contextmanager
def _compiler_not_asked() -> Iterator[None]:
    """In the block DDP does not import torch's compiler to ask it who is to exchange gradients: DDP is.

    Importing it takes each worker a second and more, after each loss again.
    """
    if "torch._dynamo" in sys.modules:
        yield
        return
    answers: Any = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
    torch._dynamo = SimpleNamespace(utils=answers)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del torch._dynamo
