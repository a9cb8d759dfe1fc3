"""How the workers of a run share a step: DDP or FSDP2, collectives, torch.compile and determinism.

All workers of torch.distributed's default group must call a collective at the same point. With sharded parameters
(`train.parallel: fsdp`) this holds for reading and loading whole tensors too.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import deterministic
from torch.utils.checkpoint import checkpoint

from tokenfree.core.errors import UserError
from tokenfree.train.model.common.attention import LayerBias

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def set_determinism(mode: int) -> None:
    """Take any kernels (0), deterministic ones where possible (1), or no others (2), also in compiled code."""
    # Filling each new tensor with NaN shows reads of memory that nothing wrote. It takes 15% of a small model's step.
    deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(mode > 0, warn_only=mode == 1)
    else:
        torch.set_deterministic_debug_mode(mode)


def recompute(layer: nn.Module) -> None:
    """Change a layer of the trunk in place so that backward computes it again (Chen et al., arXiv 1604.06174)."""
    forward = layer.forward

    def once(units_BUD: Tensor, valid_BU: Tensor, bias: Any, **more: Any) -> Tensor:
        # A bias keeps what it computed, for layers after this one: both passes must find it as empty.
        return forward(units_BUD, valid_BU, bias.afresh() if isinstance(bias, LayerBias) else bias, **more)

    def forward_twice(units_BUD: Tensor, valid_BU: Tensor, bias: Any = None, **more: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(units_BUD, valid_BU, bias, **more)
        return checkpoint(once, units_BUD, valid_BU, bias, use_reentrant=False, **more)

    layer.forward = forward_twice


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
    """The `vector`, on the device of the group, of all workers added up, on the CPU of each; it is overwritten."""
    if _num_workers() > 1:
        dist.all_reduce(vector)
    return vector.cpu()


def barrier() -> None:
    """Go on when all workers have come here."""
    if _num_workers() > 1:
        dist.barrier()


def _num_workers() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def compile_task(task: nn.Module, layers: Iterable[nn.Module], *, device: torch.device, in_parts: bool) -> None:
    """Compile `task`, or `in_parts` only its deep stack `layers`: sharded layers are gathered between them."""
    import torch._inductor  # imports much

    set_determinism(torch.get_deterministic_debug_mode())
    if device.type == "cpu":
        _find_compiler()
    for module in layers if in_parts else [task]:
        module.compile()


def _find_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        raise UserError(
            "train.compile: torch.compile needs a C++ compiler and finds none; install g++ or set train.compile to "
            "false"
        ) from None


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
    """Whole copies on the CPU by name, in the same shapes and types; nothing where `keep` is not set."""
    wholes = ((name, whole(tensor.detach())) for name, tensor in tensors)
    return {name: tensor.to("cpu", copy=True) for name, tensor in wholes if keep}


_SIOCGIFADDR = 0x8915  # of Linux: the address of an interface


def listen(address: str) -> socket.socket:
    """A socket on a free port of `address`, for the store that rank 0 gives to `join`."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.bind((address, 0))
    listener.listen()
    return listener


def join(
    backend: str,
    *,
    rank: int,
    world_size: int,
    address: str,
    port: int,
    listener: socket.socket | None = None,
    timeout: datetime.timedelta,
) -> None:
    """Join the default process group. The store of its `init_process_group` would listen on all interfaces.

    `listener` is what `listen` gave on rank 0; `address` and `port` are of the store.
    """
    store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
        address,
        port,
        world_size,
        is_master=listener is not None,
        timeout=timeout,
        master_listen_fd=None if listener is None else listener.detach(),
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)


def keep_to(address: str) -> None:
    """Have the connections between workers use the interface of `address`, where the environment names no other.

    Gloo takes the address of the host name by default, which on many systems is one that other machines cannot reach.
    NCCL chooses well among the interfaces of a cluster, but never takes loopback by itself.
    """
    interface = interface_of(address)
    if interface is None:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if ip_address(address).is_loopback:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has this IPv4 address; None where it cannot be told (macOS)."""
    if ":" in address:
        return None
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                if fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, name.encode().ljust(256, b"\0"))[20:24] == wanted:
                    return name
    return None


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


class DataParallel(SingleWorker):
    """DDP: every worker has all of the model (Li et al., arXiv 2006.15704)."""

    def __init__(self, module: nn.Module) -> None:
        # An encoder's pooler has no gradient under objectives that do not use it, hence `find_unused_parameters`; it
        # also keeps the buckets of the exchange the same from the first step on, which resuming bit for bit relies on.
        super().__init__(
            DistributedDataParallel(
                module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        )

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """See `SingleWorker.gradient_sync`: DDP exchanges gradients in each backward pass but where told not to."""
        assert isinstance(self.module, DistributedDataParallel)
        return contextlib.nullcontext() if last else self.module.no_sync()


class FullyShardedDataParallel(SingleWorker):
    """FSDP2: every worker holds a part of each parameter; `layers` are gathered one at a time, the rest at once.

    See Zhao et al., arXiv 2304.11277, and `fully_shard` of PyTorch. `module` is sharded in place.
    """

    is_sharded = True

    def __init__(self, module: nn.Module, layers: list[nn.Module], device: torch.device) -> None:
        # Imported here, because they take a second, which workers that are not sharded need not wait for.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        super().__init__(module)
        self._device = device

    def gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """See `SingleWorker.gradient_sync`: FSDP2 has a switch, which stays as it was set."""
        cast("FSDPModule", self.module).set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def broadcast_flag(self, flag: bool) -> bool:
        """Rank 0's `flag`: one number instead of a pickled object, since it is asked in every step."""
        box = torch.tensor(float(flag), device=self._device)
        dist.broadcast(box, src=0)
        return bool(box)

    def reshard(self) -> None:
        """Let go of what lies outside the layers, which without a backward pass stays gathered."""
        cast("FSDPModule", self.module).reshard()


def share(
    module: nn.Module, layers: list[nn.Module], *, sharded: bool, world_size: int, device: torch.device
) -> SingleWorker:
    """`module`, whose deep stack is `layers`, for this worker among `world_size` of the default process group."""
    if sharded:
        return FullyShardedDataParallel(module, layers, device)
    return DataParallel(module) if world_size > 1 else SingleWorker(module)


def gradient_norm(gradients: list[Tensor]) -> float:
    """The 2-norm over all gradients together; of gradients in parts, that of the whole, which all workers must ask."""
    return whole(torch.nn.utils.get_total_norm(gradients)).item()
