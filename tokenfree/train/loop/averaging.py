"""Exponential average of the weights, which validation and later use read instead of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from tokenfree.train.loop.parallel import copies
from tokenfree.train.optimizers.base import is_part, part


class WeightAverage:
    """A moving average of the parameters of `model`, which starts at the current weights.

    After update number n (from 1), e <- d * e + (1 - d) * w with d = min(`decay`, (1 + n) / (10 + n)), so the
    first weights are soon forgotten. If workers hold parts of the parameters, each averages its own part.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self._averages = {name: parameter.clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def update(self, number: int) -> None:
        decay = min(self._decay, (1 + number) / (10 + number))
        averages, weights = _local_parts(self._averages), _local_parts(self._parameters)
        torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Replace the model's weights by the averages within the block, and restore them exactly after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def tensors(self, *, keep: bool = True) -> dict[str, Tensor]:
        """Return whole copies of the averages on the CPU by parameter name. Without `keep`, return none."""
        return copies(self._averages.items(), keep=keep)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, average in self._averages.items():
            average.copy_(part(tensors[name], like=average))

    @torch.no_grad()
    def _swap(self) -> None:
        for average, weight in zip(_local_parts(self._averages), _local_parts(self._parameters), strict=True):
            saved = weight.clone()
            weight.copy_(average)
            average.copy_(saved)


def _local_parts(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the parts of some tensors that this worker holds, as views: changes to them change the tensors."""
    return [tensor.to_local() if is_part(tensor) else tensor for tensor in tensors.values()]
