"""Estimate by formula how fast a GPU can pretrain: the operations and bytes of each kernel of a micro batch.

    python -m benchmarks.gpu.estimate
    python -m benchmarks.gpu.estimate --recipe canine-fast-base --micro-batch 64

A kernel takes the longer of its operations at the peak of the tensor cores and its bytes at the speed of the memory,
both of the data sheet of an H100. Vectors between kernels are bfloat16; element-wise steps in a row are one kernel, as
a compiler fuses them. No time is counted for starting kernels or for products that are too small to reach the peak.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.gpu.speed import CANINE, FAST, Setup
from tokenfree.train.model.encoder import ModelConfig

FLOPS = 989e12  # bfloat16 operations per second of the tensor cores, without sparsity
BANDWIDTH = 3.35e12  # bytes per second
NARROW, WIDE = 2, 4  # bytes of bfloat16 and float32
VOCABULARY = 120_000


class Kernel(NamedTuple):
    part: str
    operations: float
    bytes: float

    @property
    def seconds(self) -> float:
        return max(self.operations / FLOPS, self.bytes / BANDWIDTH)


def product(part: str, rows: int, inputs: int, outputs: int) -> Iterator[Kernel]:
    """Yield a dense layer: the product of the forward pass, and the two of the backward pass."""
    matrices = NARROW * (rows * inputs + inputs * outputs + rows * outputs)
    for _ in range(3):
        yield Kernel(f"{part}: products", 2 * rows * inputs * outputs, matrices)
    # The weight's copy in bfloat16, and its gradient added to the float32 gradient.
    yield Kernel(f"{part}: casts of weights", 0, inputs * outputs * (2 * WIDE + NARROW + NARROW + WIDE))


def attention(part: str, groups: int, queries: int, keys: int, width: int) -> Iterator[Kernel]:
    """Yield fused attention; the backward pass computes the logits again: five products instead of two."""
    pairs = groups * queries * keys * width
    rows = NARROW * groups * width * (2 * queries + 2 * keys)
    yield Kernel(f"{part}: attention", 2 * 2 * pairs, rows)
    yield Kernel(f"{part}: attention", 5 * 2 * pairs, 2 * rows)


def elementwise(part: str, values: int, passes: float) -> Iterator[Kernel]:
    """Yield fused steps that read or write `values` numbers `passes` times in both directions together."""
    yield Kernel(f"{part}: element-wise", 0, NARROW * values * passes)


def layer(
    part: str, examples: int, units: int, width: int, inner: int, heads: int, keys: int
) -> Iterator[Kernel]:
    """Yield a layer of BERT, whose units attend to `keys` others."""
    rows = examples * units
    for outputs in (width, width, width, width):
        yield from product(part, rows, width, outputs)
    yield from product(part, rows, width, inner)
    yield from product(part, rows, inner, width)
    yield from attention(part, examples * heads * units // keys, keys, keys, width // heads)
    # Twice dropout, sum and LayerNorm: 3 passes forward, 5 backward; GELU: 2 and 3; biases of projections: 3, 3.
    yield from elementwise(part, rows * width, 2 * 8 + 6)
    yield from elementwise(part, rows * inner, 5)


def kernels(model: ModelConfig, length: int, num_targets: int, examples: int) -> Iterator[Kernel]:
    width, heads = model.width, model.trunk.heads
    inner = model.trunk.inner_width or 4 * width
    down, up = model.downsampler, model.upsampler
    units, characters = length // down.rate, examples * length
    orders = getattr(model.embedder, "orders", 1)
    # Rows of the tables: read and summed; backward their gradients are sorted and added to float32 tables.
    yield from elementwise("embedder", characters * width, 2 * orders + 3 * orders + 8)
    table = orders * model.embedder.buckets * width
    yield Kernel("embedder: gradient of tables", 0, 3 * WIDE * table)
    for _ in range(down.layers):
        yield from layer("local layer", examples, length, width, inner, heads, down.block)
    yield from product("down convolution", characters // down.rate, down.rate * width, width)
    for _ in range(model.trunk.layers):
        yield from layer("deep stack", examples, units, width, inner, heads, units)
    yield from product("up convolution", characters, up.kernel * width, width)
    yield from product("up convolution", examples * units, width, up.kernel * width)
    yield from elementwise("up convolution", characters * width, 14)
    yield from product("final layer", characters, width, 2 * width)
    yield from attention("final layer", examples * heads, num_targets, length, width // heads)
    yield from product("head", examples * num_targets, width, VOCABULARY)
    yield from elementwise("head", examples * num_targets * VOCABULARY, 6)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", choices=(CANINE, FAST), help="one recipe instead of both")
    parser.add_argument("--micro-batch", type=int, default=32)
    options = parser.parse_args()
    for name in (CANINE, FAST) if options.recipe is None else (options.recipe,):
        report(name, options.micro_batch)


def report(name: str, examples: int) -> None:
    recipe = Setup(name).recipe(examples)
    all_kernels = list(kernels(recipe.model, recipe.train.length, recipe.objective.max_predictions, examples))
    total = sum(kernel.seconds for kernel in all_kernels)
    print(f"{name}, micro batches of {examples}: ms at the peak of operations and of memory")
    for part in dict.fromkeys(kernel.part for kernel in all_kernels):
        of_part = [kernel for kernel in all_kernels if kernel.part == part]
        operations = 1000 * sum(kernel.operations for kernel in of_part) / FLOPS
        memory = 1000 * sum(kernel.bytes for kernel in of_part) / BANDWIDTH
        print(f"  {part:38}{operations:8.2f}{memory:8.2f}{1000 * sum(k.seconds for k in of_part):8.2f}")
    useful = sum(kernel.operations for kernel in all_kernels) / FLOPS
    print(f"  {'all':38}{1000 * useful:8.2f}{'':8}{1000 * total:8.2f}")
    print(f"  {examples / total:.0f} sequences/s, {useful / total:.0%} of the peak\n")


if __name__ == "__main__":
    main()
