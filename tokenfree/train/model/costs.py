"""Costs of a model: parameters, multiply-accumulates and memory."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tokenfree.train.model.common.basic import Cost, count_parameters
from tokenfree.train.model.encoder import Encoder, ModelConfig

BYTES = 4  # size of a float32
OPTIMIZER_MOMENTS = 2  # Adam and LAMB keep two numbers per parameter


class Memory(NamedTuple):
    """Memory in bytes of a float32 training step when the backward pass begins."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return sum(self)


def costs(model: ModelConfig, length: int, num_targets: int | None = None) -> list[Cost]:
    """Return the costs of the parts of `model` in computation order, for one example of `length` characters.

    Multiply-accumulates follow the formulas, even where the code is cheaper. `num_targets` None: all
    characters.
    """
    return _shapes_only(model).costs(length, num_targets)


def num_parameters(model: ModelConfig) -> int:
    return count_parameters(_shapes_only(model))


def step_memory(model: ModelConfig, length: int, batch: int, num_targets: int | None = None) -> Memory:
    """Return the memory of a training step on the CPU, measured as what autograd saves in a pass over fake tensors."""
    encoder = _shapes_only(model)
    with FakeTensorMode(allow_non_fake_inputs=True):
        encoder.to_empty(device="cpu")
        weights = BYTES * count_parameters(encoder)
        return Memory(
            weights, weights, OPTIMIZER_MOMENTS * weights, _kept(encoder, length, batch, num_targets)
        )


def _kept(encoder: Encoder, length: int, batch: int, num_targets: int | None) -> int:
    parameter_storages = {parameter.untyped_storage()._cdata for parameter in encoder.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameter_storages:
            # Keep the tensor, so that its key is not reused.
            kept[storage._cdata] = (storage.nbytes(), tensor)
        return tensor

    codepoints_BC = torch.zeros(batch, length, dtype=torch.int64)
    targets_BP = None if num_targets is None else torch.zeros(batch, num_targets, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        encoder(codepoints_BC, codepoints_BC.bool(), None, targets_BP, _unit_ends(encoder, length, batch))
    return sum(size for size, _ in kept.values())


def _unit_ends(encoder: Encoder, length: int, batch: int) -> Tensor | None:
    if encoder.config.downsampler.bytes_per_word is None:
        return None
    num_units = encoder.downsampler.num_units(length)
    return (torch.arange(1, num_units + 1) * length // num_units).repeat(batch, 1)


def _shapes_only(model: ModelConfig) -> Encoder:
    with torch.device("meta"):
        return model.build()
