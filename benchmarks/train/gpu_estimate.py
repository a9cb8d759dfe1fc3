"""An estimate, not a measurement: what a step of pretraining should take on a GPU, operation by operation.

    python -m benchmarks.train.gpu_estimate                             # CANINE base, 32 x 2,048 characters, one H100
    python -m benchmarks.train.gpu_estimate --accelerator a100 --batch 16

A micro batch is run forward and backward without data, in bfloat16 with float32 weights, and every operation is listed
with its arithmetic and the bytes that it reads and writes. Its time is the longest of three: arithmetic at
`--of-peak` of the peak, bytes at `--of-bandwidth` of the memory's, and the launch of a kernel. Attention is reckoned as
one kernel that keeps no weights, as PyTorch's own for GPUs; nothing else is fused. What it says is to be compared with
`benchmarks.train.gpu_step`, which measures.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.train.gpu_step import make_batch
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.devices import ACCELERATORS
from tokenfree.train.loop.step import Meter, pretraining_task
from tokenfree.train.model.common.basic import count_parameters
from tokenfree.workflows.recipes import library

BANDWIDTH = {"a100": 2.04e12, "h100": 3.35e12, "h200": 4.8e12, "l4": 0.3e12}  # bytes a second, of the data sheets
AIM = 0.55  # utilisation, of the measured peak
LAUNCH = 3e-6  # seconds: a small kernel takes no less
BACKWARD = 2.5  # of attention: five products for each two, as weights are computed again
UPDATE_BYTES = 28  # of a parameter: weight, gradient and two moments read, all but the gradient written, float32
NOTHING = ("detach", "empty", "new_empty", "_unsafe_view")  # beginnings of the names of operations that move no bytes


@dataclass
class Row:
    """What one kind of operation comes to in a micro batch."""

    calls: int = 0
    flops: float = 0
    moved: float = 0
    seconds: float = 0


class Device(NamedTuple):
    """What operations are reckoned with: operations and bytes a second."""

    arithmetic: float
    bandwidth: float

    def seconds(self, flops: float, moved: float) -> float:
        return max(flops / self.arithmetic, moved / self.bandwidth, LAUNCH)


class Ledger(TorchDispatchMode):
    """Writes down each operation that runs in it, but for views."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.rows: dict[str, Row] = defaultdict(Row)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        if bytes_of(result) and not func.is_view and not name.startswith(NOTHING):
            count = flop_registry.get(func._overloadpacket)
            flops = float(count(*args, **(kwargs or {}), out_val=result)) if count else 0.0
            self.note(name, flops, bytes_of((args, kwargs, result)))
        return result

    def note(self, name: str, flops: float, moved: float) -> None:
        row = self.rows[name]
        row.calls += 1
        row.flops += flops
        row.moved += moved
        row.seconds += self.device.seconds(flops, moved)


def bytes_of(values: Any) -> int:
    """The bytes of all tensors in what an operation takes or gives."""
    if isinstance(values, Tensor):
        return values.untyped_storage().nbytes() if 0 in values.stride() else values.nbytes
    if isinstance(values, dict):
        return sum(bytes_of(value) for value in values.values())
    return sum(bytes_of(value) for value in values) if isinstance(values, list | tuple) else 0


def fused_attention(ledger: Ledger) -> Any:
    """In place of torch's attention: nothing is computed, and one operation noted each way."""

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
            ctx.save_for_backward(queries, keys, values)
            ctx.flops = 4 * queries.numel() * keys.shape[-2]
            ctx.moved = bytes_of((queries, keys, values, hidden, queries))
            ledger.note("attention", ctx.flops, ctx.moved)
            return torch.empty_like(queries)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            ledger.note("attention_backward", BACKWARD * ctx.flops, 2 * ctx.moved)
            return (*(torch.empty_like(saved) for saved in ctx.saved_tensors), None)

    return lambda queries, keys, values, hidden, rate: Attention.apply(queries, keys, values, hidden)


def gpu_dropout(x: Tensor, rate: float) -> Tensor:
    """As GPUs do it, in one kernel."""
    return torch.native_dropout(x, rate, True)[0]


def gpu_layer_norm(x: Tensor, *parameters: Any) -> Tensor:
    """As autocast has it on GPUs: in float32."""
    return torch.layer_norm(x.float(), *parameters)


def main() -> None:
    options = parse()
    accelerator = ACCELERATORS[options.accelerator]
    device = Device(options.of_peak * accelerator.bfloat16, options.of_bandwidth * BANDWIDTH[options.accelerator])
    recipe = build(PretrainRecipe, library.read_based(options.recipe), source=options.recipe)
    ledger = Ledger(device)
    batch = make_batch(recipe, options.batch, options.vocabulary)
    with torch.device("meta"):
        task = pretraining_task(recipe, options.vocabulary).train()
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        task.to_empty(device="cpu")
        inputs = {name: fake.from_tensor(values) for name, values in batch.items()}
        with (
            mock.patch.object(torch.compiler, "is_compiling", return_value=True),  # the ways of the CPU are not taken
            mock.patch.object(F, "dropout", gpu_dropout),
            mock.patch.object(F, "layer_norm", gpu_layer_norm),
            mock.patch.object(F, "scaled_dot_product_attention", fused_attention(ledger)),
            ledger,
        ):
            with torch.autocast("cpu", torch.bfloat16):
                total, _ = task(inputs)
            total.backward()
        meter = Meter(task.encoder, task.head, device=torch.device("cpu"), precision="bfloat16")
        parameters = count_parameters(task)
    update = Row(1, 0, parameters * UPDATE_BYTES / options.accumulate)
    update.seconds = device.seconds(0, update.moved)
    ledger.rows[f"optimizer, every {options.accumulate}"] = update
    show(ledger.rows, meter.flops({name: values.numpy() for name, values in batch.items()}), device, options)


def show(rows: dict[str, Row], flops: float, device: Device, options: argparse.Namespace) -> None:
    seconds = sum(row.seconds for row in rows.values())
    print(f"{options.recipe}, micro batch of {options.batch}, {options.accelerator}: an estimate")
    print(f"{'operation':30} {'calls':>6} {'GFLOP':>9} {'GB':>8} {'ms':>8} {'share':>6}  bound by")
    for name, row in sorted(rows.items(), key=lambda item: -item[1].seconds)[: options.rows]:
        arithmetic, memory = row.flops / device.arithmetic, row.moved / device.bandwidth
        bound = "arithmetic" if arithmetic > memory else "memory" if memory > row.calls * LAUNCH else "launches"
        print(
            f"{name:30} {row.calls:6,} {row.flops / 1e9:9,.0f} {row.moved / 1e9:8.2f} {1e3 * row.seconds:8.2f} "
            f"{row.seconds / seconds:6.1%}  {bound}"
        )
    reached = flops / seconds / device.arithmetic
    print(f"{1e3 * seconds:.1f} ms, {options.batch / seconds:,.0f} sequences/s")
    print(f"{reached:.0%} of what a large product reaches, {reached * options.of_peak:.0%} of the data sheet's peak")
    alone = sum(row.seconds for row in rows.values() if row.flops)
    left = max(0, flops / AIM / device.arithmetic - alone)
    print(
        f"products and attention take {1e3 * alone:.1f} ms, the rest {1e3 * (seconds - alone):.1f} ms, which may be "
        f"{1e3 * left:.1f} ms for {AIM:.0%} of what a large product reaches"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="canine-s-base", help="as of benchmarks.train.gpu_step")
    parser.add_argument("--accelerator", choices=BANDWIDTH, default="h100")
    parser.add_argument("--batch", type=int, default=32, help="sequences of a micro batch")
    parser.add_argument("--accumulate", type=int, default=8, help="micro batches of a step")
    parser.add_argument("--vocabulary", type=int, default=120_000, help="subwords of the softmax")
    parser.add_argument("--of-peak", type=float, default=0.7, help="what large products reach (assumed; default 0.7)")
    parser.add_argument("--of-bandwidth", type=float, default=0.8, help="the same of memory (assumed; default 0.8)")
    parser.add_argument("--rows", type=int, default=24, help="lines of the table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
