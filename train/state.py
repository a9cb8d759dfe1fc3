"""Model and optimizer as named tensors, for checkpoints that do not depend on the order of parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters and persistent buffers on the CPU."""
    return {name: _copy(tensor) for name, tensor in model.state_dict().items()}


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies of the optimizer's state on the CPU, named `parameter|slot`, such as `head.bias|exp_avg`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}|{slot}": _copy(value)
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give `optimizer`, made for `model`, the state of `optimizer_tensors`."""
    slots: dict[str, dict[str, Tensor]] = {}
    for entry, value in tensors.items():
        name, slot = entry.split("|")
        slots.setdefault(name, {})[slot] = value
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    state = {index: slots[name] for index, name in enumerate(order) if name in slots}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
