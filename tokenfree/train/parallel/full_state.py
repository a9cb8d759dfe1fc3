"""Model and optimizer as named whole tensors, for checkpoints that depend neither on the order of parameters nor on how
many workers hold them, and in what parts.

Where workers hold parts of tensors (`train.parallel: fsdp`), all of them must call these functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor  # takes a second, and only sharded workers need it


def model_tensors(model: nn.Module, *, keep: bool = True) -> dict[str, Tensor]:
    """Copies of the parameters and persistent buffers on the CPU by name, as `copies` makes them."""
    return copies(model.state_dict().items(), keep=keep)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, *, keep: bool = True) -> dict[str, Tensor]:
    """Copies of the optimizer's state on the CPU, named `parameter|slot`, such as `head.bias|exp_avg`; see `copies`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    state = (
        (f"{names[parameter]}|{slot}", value)
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
    )
    return copies(state, keep=keep)


def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give `model` the weights of `model_tensors`, all of them."""
    own = model.state_dict()
    model.load_state_dict({name: part(tensor, like=own.get(name)) for name, tensor in tensors.items()})


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give `optimizer`, made for `model`, the state of `optimizer_tensors`."""
    parameters = dict(model.named_parameters())
    slots: dict[str, dict[str, Tensor]] = {}
    for entry, value in tensors.items():
        name, slot = entry.split("|")
        slots.setdefault(name, {})[slot] = part(value, like=parameters[name]) if value.ndim else value
    names: dict[Tensor, str] = {parameter: name for name, parameter in parameters.items()}
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    state = {index: slots[name] for index, name in enumerate(order) if name in slots}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def is_part(tensor: Tensor | None) -> TypeGuard[DTensor]:
    """Whether `tensor` is one of which each worker holds a part."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each worker holds a part; any other as it is."""
    return tensor.full_tensor() if is_part(tensor) else tensor


def part(tensor: Tensor, *, like: Tensor | None) -> Tensor:
    """Of a whole tensor that all workers have, what this one is to hold of it: as much as of `like`, of its shape."""
    if not is_part(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def copies(tensors: Iterable[tuple[str, Tensor]], *, keep: bool) -> dict[str, Tensor]:
    """Whole copies on the CPU by name, in the same shapes and types; nothing where `keep` is not set, which saves the
    memory of workers that do not write.
    """
    wholes = ((name, whole(tensor.detach())) for name, tensor in tensors)
    return {name: tensor.to("cpu", copy=True) for name, tensor in wholes if keep}
