"""One worker with the whole model, and the interface of all ways to share a step."""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn


class SingleWorker:
    """One worker with the whole model; the classes below it say what workers that share a step do otherwise.

    `module` is what to call for a loss with gradients. Where `is_sharded`, each worker holds a part of the parameters:
    workers must then call the model equally often, and make snapshots of it at the same time.
    """

    is_sharded = False

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """The context of one micro batch; gradients are averaged over the workers in the `last` one of a step."""
        return contextlib.nullcontext()

    def broadcast_flag(self, flag: bool) -> bool:
        """Rank 0's `flag` where workers are sharded and must do the same; on others their own."""
        return flag

    def reshard(self) -> None:
        """Keep no parameter gathered: they are about to be changed, or were. One worker has nothing to give back."""
