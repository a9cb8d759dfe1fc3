"""How the workers of a run share a step: collectives, whole copies of tensors, and a worker on its own.

All workers call a collective at the same point. With sharded parameters this includes reading and loading
tensors.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.train.config import LoopConfig
from tokenfree.train.optimizers.base import part, whole

T = TypeVar("T")


def broadcast(value: T) -> T:
    """Return rank 0's `value` on all workers. It is pickled in transit."""
    box: list[Any] = [value]
    if _num_workers() > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def gather(value: T) -> list[T]:
    """Return the values of all workers in the order of ranks, on all workers. They are pickled in transit."""
    values: list[Any] = [value] * _num_workers()
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values


def sum_over_workers(vector: Tensor) -> Tensor:
    """Return the sum of all workers' `vector`, on the CPU. `vector` is on the group's device and is overwritten."""
    if _num_workers() > 1:
        dist.all_reduce(vector)
    return vector.cpu()


def barrier() -> None:
    if _num_workers() > 1:
        dist.barrier()


def _num_workers() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


MIN_STEPS_TO_COMPILE = 10_000


def compiles(config: LoopConfig, device: torch.device) -> bool:
    """Return True if a run on `device` is compiled (`train.compile`). A run of a GPU can be evaluated on a CPU."""
    by_default = config.steps >= MIN_STEPS_TO_COMPILE
    return device.type != "cpu" and (by_default if config.compile is None else config.compile)


def check_compile(enabled: bool | None, device: str) -> None:
    """Raise UserError if `train.compile` is set on a CPU."""
    if enabled and device == "cpu":
        raise UserError(
            "train.compile: true makes training on a CPU 1.6 times slower. Set it to false, or train on a GPU."
        )


def model_tensors(model: nn.Module, *, keep: bool = True) -> dict[str, Tensor]:
    """Return whole copies on the CPU of the parameters and persistent buffers, by name.

    Without `keep`, return none.
    """
    return copies(model.state_dict().items(), keep=keep)


def optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, keep: bool = True
) -> dict[str, Tensor]:
    """Return whole copies on the CPU of the optimizer's state, named `parameter|slot`.

    Without `keep`, return none.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    state = (
        (f"{names[parameter]}|{slot}", value)
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
    )
    return copies(state, keep=keep)


def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    state = model.state_dict()
    model.load_state_dict({name: part(tensor, like=state.get(name)) for name, tensor in tensors.items()})


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    slots: dict[str, dict[str, Tensor]] = {}
    for entry, value in tensors.items():
        name, slot = entry.split("|")
        slots.setdefault(name, {})[slot] = part(value, like=parameters[name]) if value.ndim else value
    names: dict[Tensor, str] = {parameter: name for name, parameter in parameters.items()}
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    state = {index: slots[name] for index, name in enumerate(order) if name in slots}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def copies(tensors: Iterable[tuple[str, Tensor]], *, keep: bool) -> dict[str, Tensor]:
    wholes = ((name, whole(tensor.detach())) for name, tensor in tensors)
    return {name: tensor.to("cpu", copy=True) for name, tensor in wholes if keep}


class SingleWorker:
    """One worker with the whole model, and the base class for workers that share a step.

    If `is_sharded`, all workers must call `module` the same number of times, and take snapshots at the same
    time.
    """

    is_sharded = False

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def broadcast_flag(self, flag: bool) -> bool:
        """Return rank 0's `flag` if workers are sharded and must act together, else this worker's own."""
        return flag

    def reshard(self) -> None:
        """Free gathered parameters before or after their values change. One worker has none."""
