"""Memory that several layers use in turn, where no gradient needs it to stay."""

from __future__ import annotations

import torch
from torch import Tensor


class Workspace:
    """Named pieces of memory. At 512 units, to get new memory for each layer takes longer than to write to it."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """The memory of a name, for values of `shape` and the type of `like`; whoever had it before is done with it."""
        found = self._memory.get(name)
        if found is None or found.shape != shape or found.dtype != like.dtype:
            found = self._memory[name] = like.new_empty(shape)
        return found


def works_in_place(values: Tensor) -> bool:
    """Whether memory is the program's own to manage where `values` are, and all values are of one type."""
    return values.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
