"""A running average of the weights, which often validates better than the weights of the last step (Polyak and
Juditsky, 1992; here exponential, as TensorFlow's ExponentialMovingAverage with its `num_updates`).

Where a run has one, its checkpoints hold it beside the weights that are trained, and validation, `tokenfree evaluate`,
`tokenfree export` and `load_encoder` use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from tokenfree.train.parallel.full_state import copies, is_part, part


class WeightAverage:
    """e <- d * e + (1 - d) * w for the parameters of `model` after each update, beginning with the weights as they are.

    The decay d of update number n (from 1) is min(`decay`, (1 + n) / (10 + n)), so that the first weights are soon
    forgotten. Where workers hold parts of the parameters, each averages its own.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self._averages = {name: parameter.clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def update(self, number: int) -> None:
        """Take in the weights after update `number`, counted from 1."""
        decay = min(self._decay, (1 + number) / (10 + number))
        averages, weights = _here(self._averages), _here(self._parameters)
        torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """The model has the averages for weights in the block, and its own, to the bit, after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def tensors(self, *, keep: bool = True) -> dict[str, Tensor]:
        """Whole copies on the CPU by the names of the parameters, in their shapes and types; see `copies`."""
        return copies(self._averages.items(), keep=keep)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `tensors` gave, whole on every worker."""
        for name, average in self._averages.items():
            average.copy_(part(tensors[name], like=average))

    @torch.no_grad()
    def _swap(self) -> None:
        for average, weight in zip(_here(self._averages), _here(self._parameters), strict=True):
            before = weight.clone()
            weight.copy_(average)
            average.copy_(before)


def _here(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """What this worker holds of some tensors; changes to it are changes to them."""
    return [tensor.to_local() if is_part(tensor) else tensor for tensor in tensors.values()]
