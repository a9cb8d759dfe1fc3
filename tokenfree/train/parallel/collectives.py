"""What the workers of a run say to each other besides gradients; where there is no group of several, nothing is sent.

The group is torch.distributed's default one. All its workers must call a function at the same point.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def broadcast(value: T) -> T:
    """The `value` that rank 0 gives, on all workers; it is pickled on its way."""
    box: list[Any] = [value]
    if _num_workers() > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def gather(value: T) -> list[T]:
    """The `value` of each worker in the order of ranks, on all of them; they are pickled on their way."""
    values: list[Any] = [value] * _num_workers()
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values


def sum_over_workers(vector: Tensor) -> Tensor:
    """The `vector` (any shape and type) of all workers added up, on the CPU of each; overwritten where there are some.

    `vector` lies on the device of the group: on the CPU for Gloo, on the worker's GPU for NCCL.
    """
    if _num_workers() > 1:
        dist.all_reduce(vector)
    return vector.cpu()


def barrier() -> None:
    """Go on when all workers have come here."""
    if _num_workers() > 1:
        dist.barrier()


def _num_workers() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
