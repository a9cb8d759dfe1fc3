"""How the workers of a run share a step, and options for large models: sharding, recomputed layers, averages.

All workers call a collective at the same point. With sharded parameters this includes reading and loading
tensors. An exponential average of the weights is what validation and later use then read instead of them.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tokenfree.core.errors import UserError
from tokenfree.train.config import LoopConfig
from tokenfree.train.model.common.attention import LayerBias
from tokenfree.train.optimizers.base import is_part, part, whole
from tokenfree.train.torch_state import set_determinism

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

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
    """Return the sum of all workers' `vector`, on the CPU.

    `vector` is on the group's device and is overwritten.
    """
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
    """Return True if a run on `device` is compiled (`train.compile`).

    A run of a GPU can be evaluated on a CPU.
    """
    enabled = config.steps >= MIN_STEPS_TO_COMPILE if config.compile is None else config.compile
    return device.type != "cpu" and enabled


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


def recompute(layer: nn.Module) -> None:
    """Change a layer of the trunk in place so that backward recomputes it (Chen et al., arXiv 1604.06174)."""
    forward = layer.forward

    def once(units_BUD: Tensor, valid_BU: Tensor, bias: Any, **more: Any) -> Tensor:
        # A bias caches its values for the following layers. Both passes must start with an empty cache.
        return forward(units_BUD, valid_BU, bias.uncached() if isinstance(bias, LayerBias) else bias, **more)

    def forward_twice(units_BUD: Tensor, valid_BU: Tensor, bias: Any = None, **more: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(units_BUD, valid_BU, bias, **more)
        return checkpoint(once, units_BUD, valid_BU, bias, use_reentrant=False, **more)

    layer.forward = forward_twice


def compile_task(task: nn.Module, layers: Iterable[nn.Module], *, in_parts: bool) -> None:
    """Compile `task`, or with `in_parts` each of its `layers`, between which sharded parameters are gathered."""
    # Imported here because it imports many modules.
    import torch._inductor

    set_determinism(torch.get_deterministic_debug_mode())
    for module in layers if in_parts else [task]:
        module.compile()


class DataParallel(SingleWorker):
    """DDP: every worker has the whole model (Li et al., arXiv 2006.15704)."""

    def __init__(self, module: nn.Module) -> None:
        # An encoder's pooler has no gradient under objectives that do not use it, so `find_unused_parameters`
        # is set. It also keeps the buckets of the exchange the same from the first step on, as bit-for-bit
        # resuming requires.
        super().__init__(
            DistributedDataParallel(
                module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        )

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        assert isinstance(self.module, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.module.no_sync()


class FullyShardedDataParallel(SingleWorker):
    """FSDP2: every worker holds a part of each parameter; each of `layers` is gathered alone (arXiv 2304.11277)."""

    is_sharded = True

    def __init__(self, module: nn.Module, layers: list[nn.Module], device: torch.device) -> None:
        # Imported here because they take a second, which only sharded workers need.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        super().__init__(module)
        self._device = device

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        cast("FSDPModule", self.module).set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def broadcast_flag(self, flag: bool) -> bool:
        box = torch.tensor(float(flag), device=self._device)
        dist.broadcast(box, src=0)
        return bool(box)

    def reshard(self) -> None:
        """Free the parameters outside the layers, which stay gathered if no backward pass follows."""
        cast("FSDPModule", self.module).reshard()


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
