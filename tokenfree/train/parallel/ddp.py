"""Workers that each have a copy of the model (torch's DistributedDataParallel)."""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tokenfree.train.parallel.single import SingleWorker


class DataParallel(SingleWorker):
    """DDP: every worker has all of the model (Li et al., arXiv 2006.15704)."""

    def __init__(self, module: nn.Module) -> None:
        # An encoder's pooler has no gradient under objectives that do not use it, hence `find_unused_parameters`; it
        # also keeps the buckets of the exchange the same from the first step on, which resuming bit for bit relies on.
        super().__init__(
            DistributedDataParallel(
                module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        )

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """See `SingleWorker.gradient_sync`: DDP exchanges gradients in each backward pass but where told not to."""
        assert isinstance(self.module, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.module.no_sync()
