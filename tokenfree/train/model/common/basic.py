"""Layers and records that the parts of the model share: layers, initial weights, dimensions, grouping.

Dense layers, dropout and look-ups are faster here than PyTorch's on a CPU.

B batch, C characters, U units after DOWN, D width, X rows of a table
"""

import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tokenfree.core.errors import UserError

# multiply-accumulates; for fewer, the call costs more than the wider instructions save.
MIN_PRODUCTS = 2**21


class Dense(nn.Linear):
    """nn.Linear, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b, equal to F.linear up to rounding: `x` [..., in] and `weight` [out, in] give [..., out].

    Uses oneDNN where it is faster than MKL, depending only on the CPU and the shapes. PyTorch passes float32
    products to MKL, which uses AVX-512 only on Intel. On an EPYC (Zen 5) with one thread, MKL reaches 114
    GFLOP/s, oneDNN 226.
    """
    if torch.compiler.is_compiling() or not _gains(x, weight):
        return nn.functional.linear(x, weight, bias)
    return _OneDnnLinear.apply(x, weight, bias)


def _gains(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() > 1
        and x[..., 0].numel() * weight.numel() >= MIN_PRODUCTS
        and not torch.is_autocast_enabled("cpu")
        and mkl_is_slow()
    )


@functools.cache
def mkl_is_slow() -> bool:
    """Return True if this CPU has AVX-512 and is not Intel's.

    A benchmark would make results irreproducible.
    """
    cpuinfo = Path("/proc/cpuinfo")
    usable = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not usable or not torch.backends.mkl.is_available() or not cpuinfo.is_file():
        return False
    text = cpuinfo.read_text()
    return "avx512f" in text and "GenuineIntel" not in text


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.t(), None).unflatten(0, x.shape[:-1]) if needs_x else None,
            _product(gradient.t(), x.flatten(0, -2).t(), None) if needs_weight else None,
            gradient.sum(dim=0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def cast_for_products(x: Tensor) -> Tensor:
    """Return `x` in the dtype of matrix products.

    Those of the same tensor then share a cast, forward and backward.
    """
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


STEPS = 2**16  # dropout rates are rounded to a multiple of 1 / STEPS


class Dropout(nn.Module):
    """nn.Dropout, computed by `dropout`."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training)


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Apply dropout (arXiv 1207.0580) with masks of int8.

    PyTorch's dropout draws and keeps one float32 per value. On the CPU it took 15% of a training step of
    CANINE base.
    """
    if not training or rate == 0:
        return x
    if not draws_here(x):
        return nn.functional.dropout(x, rate)
    return _Dropout.apply(x, *_keep(x, rate))  # pyright: ignore[reportReturnType]


def average(weights: Tensor, values: Tensor, rate: float) -> Tensor:
    """Return dropout(weights) @ values, [..., Q, K] times [..., K, E].

    Saves only the operands and the dropout mask.
    """
    return _Average.apply(weights, values, *_keep(weights, rate))  # pyright: ignore[reportReturnType]


def draws_here(x: Tensor) -> bool:
    """Return True if `x` is on the CPU and not being compiled. Elsewhere PyTorch's own kernels are used."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _keep(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Return a mask of the values of `x`, int8: -1 to keep, 0 to drop.

    Return the factor by which dropout scales.
    """
    threshold = min(max(round(rate * STEPS), 1), STEPS - 1)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    numbers = draws.view(torch.int16)[: x.numel()].view(x.shape)
    # In place, the comparison writes numbers, which takes a seventh of the time that it takes to write bool.
    return numbers.ge_(threshold - STEPS // 2).neg_().to(torch.int8), STEPS / (STEPS - threshold)


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of an element


def _only(x: Tensor, keep: Tensor) -> Tensor:
    """Return `x` where it is kept, 0 elsewhere. `torch.where` takes ten times as long as this bitwise AND."""
    bits = keep.to(_BITS[x.element_size()])
    return bits.bitwise_and_(x.view(bits.dtype)).view(x.dtype)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, keep: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.factor = factor
        return _only(x, keep).mul_(factor)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return _only(gradients[0], keep).mul_(ctx.factor), None, None


class _Average(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights: Tensor, values: Tensor, keep: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(weights, values, keep)
        ctx.factor = factor
        return (_only(weights, keep) @ values).mul_(factor)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weights, values, keep = ctx.saved_tensors
        gradient = gradients[0] * ctx.factor
        of_values = _only(weights, keep).transpose(-2, -1) @ gradient
        return _only(gradient @ values.transpose(-2, -1), keep), of_values, None, None


def embedding(index: Tensor, table_XD: Tensor) -> Tensor:
    """Return the rows of a table. On the CPU, the gradient of `index_select` takes half as long."""
    if not draws_here(table_XD):
        return nn.functional.embedding(index, table_XD)
    return table_XD.index_select(0, index.flatten()).unflatten(0, index.shape)


# Before torch 2.12, `is_exporting` is also true inside torch.compile, although its graphs have fixed shapes.
_ALSO_COMPILING = torch.__version__ < "2.12"


def is_exporting() -> bool:
    return torch.compiler.is_exporting() and not (_ALSO_COMPILING and torch.compiler.is_dynamo_compiling())


class Cost(NamedTuple):
    """Cost of a part of the model for one example: output shape, parameters, and forward multiply-accumulates."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    multiply_accumulates: int


M = TypeVar("M", bound=nn.Module)


def takes(module: M, names: str) -> M:
    """Return a module.

    Raises UserError unless its `forward` takes these arguments; those after `*` are named.
    """
    by_position, _, by_name = names.partition(", *, ")
    try:
        if type(module).forward is nn.Module.forward:
            raise TypeError
        keywords = dict.fromkeys(filter(None, [by_name]))
        inspect.signature(module.forward).bind(*by_position.split(", "), **keywords)
    except TypeError:
        kind = type(module)
        raise UserError(f"{kind.__module__}.{kind.__qualname__}: forward must take ({names})") from None
    return module


def count_parameters(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def refuse_more(number: int, limit: int, what: str, key: str) -> None:
    """Raise UserError if `number` exceeds `limit`, the number of table rows that `key` sets."""
    if number > limit:
        raise UserError(f"{number} {what} are more than {key}, {limit}; cut the text or raise it")


def too_many(number: int | None, limit: int, what: str, key: str) -> Iterator[str]:
    """Yield a problem if the `limit` table rows set by `key` do not suffice for `number` items, such as units."""
    if number is not None and number > limit:
        yield f"{key}: {limit} is less than the {what} of an example, {number}"


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


Activation = Literal["gelu_tanh", "gelu"]


@dataclass(frozen=True)
class Dimensions:
    """Widths, heads, dropout rate and activation that all layers of a model share."""

    width: int
    heads: int
    inner_width: int
    dropout: float
    activation: Activation
    character_width: int = 0  # width of the input of DOWN; 0: `width`

    def __post_init__(self) -> None:
        object.__setattr__(self, "character_width", self.character_width or self.width)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


LAYER_NORM_EPSILON = 1e-12


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm. In compiled training, its output has the dtype of products.

    Vectors between layers then take half of the memory traffic: 4% of a step of CANINE base on an H200.
    """

    def forward(self, input: Tensor) -> Tensor:
        output = super().forward(input)
        return cast_for_products(output) if self.training and torch.compiler.is_compiling() else output


def layer_norm(width: int) -> LayerNorm:
    """Return a LayerNorm (arXiv 1607.06450) over the last `width` values, with the epsilon of BERT and CANINE."""
    return LayerNorm(width, eps=LAYER_NORM_EPSILON)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Apply GELU (arXiv 1606.08415): its tanh approximation, as in the official code, or exact, as in PyTorch ports."""
    return nn.functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


class Grouping(NamedTuple):
    """Unit of each character.

    `rate` is set for CANINE's grouping, which allows UP to use cheaper arithmetic. Unit 0 is CLS, and unit 1
    + i holds characters rate * i to rate * i + rate - 1. The last unit also stands for all characters after
    its own.
    """

    unit_BC: Tensor  # int64 [B or 1, C]
    rate: int | None = None


class Downsampled(NamedTuple):
    """Output of DOWN: the units, and the characters that UP receives."""

    units_BUD: Tensor
    valid_BU: Tensor  # bool: real units
    grouping: Grouping
    characters_BCD: Tensor


def unit_segments(segments_BC: Tensor, grouping: Grouping, num_units: int) -> Tensor:
    """Return the segment of each unit's first character, int64 [B, U]; that of CLS for unit 0 and units without any."""
    unit_BC = grouping.unit_BC
    positions_BC = torch.arange(unit_BC.shape[1], device=unit_BC.device).expand_as(unit_BC)
    nowhere = unit_BC.shape[1]
    first_BU = positions_BC.new_full((unit_BC.shape[0], num_units), nowhere)
    first_BU = first_BU.scatter_reduce(1, unit_BC, positions_BC, "amin")
    first_BU = torch.where(first_BU == nowhere, 0, first_BU)
    return segments_BC.gather(1, first_BU.expand(segments_BC.shape[0], -1))


def any_of_units(marked_BC: Tensor, grouping: Grouping, num_units: int) -> Tensor:
    """Return which units hold a marked character, bool [B, U]. Characters with `marked_BC` > 0 are marked."""
    counts_BU = torch.zeros(marked_BC.shape[0], num_units, dtype=torch.int64, device=marked_BC.device)
    unit_BC = grouping.unit_BC.expand(marked_BC.shape)
    return counts_BU.scatter_add(1, unit_BC, (marked_BC > 0).to(torch.int64)) > 0


def gather_rows(x_BCD: Tensor, index_BP: Tensor) -> Tensor:
    """Return the rows `index_BP`, int64, of each example, [B, P, D]."""
    return x_BCD.gather(1, index_BP[..., None].expand(-1, -1, x_BCD.shape[-1]))


class TableRows(NamedTuple):
    """The vectors `table_XD[index_BC]`, not looked up yet, and the segments of characters, which DOWN adds later."""

    table_XD: Tensor
    index_BC: Tensor  # int64
    segments_BC: Tensor | None


def look_up(embedded: Tensor | TableRows) -> Tensor:
    return embedding(embedded.index_BC, embedded.table_XD) if isinstance(embedded, TableRows) else embedded


def as_rows(embedded: Tensor | TableRows) -> TableRows:
    """Return vectors [B, C, D] of any embedder as rows of a table, each used once."""
    if isinstance(embedded, TableRows):
        return embedded
    num_rows = embedded.shape[0] * embedded.shape[1]
    index_BC = torch.arange(num_rows, device=embedded.device).view(embedded.shape[:2])
    return TableRows(embedded.flatten(0, 1), index_BC, None)


STD = 0.02
# Width of BERT-large, at which `scaled` has the standard deviation STD.
USUAL_WIDTH = 1024
Initialisation = Literal["official", "scaled"]


class GlorotDense(Dense):
    """A dense layer with Glorot-uniform initialisation, as in the multi-scale Transformer (arXiv 1912.00544)."""


class FanInDense(Dense):
    """A dense layer whose initial standard deviation in_features^-1/2 preserves the scale outside residual layers."""


class ScaledEmbedding(nn.Embedding):
    def __init__(self, num_rows: int, width: int, *, std: float) -> None:
        super().__init__(num_rows, width)
        self.std = std


class PositionTable(ScaledEmbedding):
    """A table of learned positions. The initialisation `scaled` starts it as sinusoids."""

    def __init__(self, num_rows: int, width: int, *, std: float = STD) -> None:
        super().__init__(num_rows, width, std=std)


class SinusoidTable(PositionTable):
    """A table of learned positions that starts as sinusoids with any initialisation."""


class GateDense(Dense):
    """A dense layer before a sigmoid.

    Its initial bias of -2 nearly closes the gate (Srivastava et al. 2015).
    """


def sinusoids(num_positions: int, width: int) -> Tensor:
    """Return sines in even columns and cosines in odd ones, [num_positions, width] (arXiv 1706.03762, section 3.5)."""
    rates_D = 10000.0 ** (-(torch.arange(width) // 2 * 2) / width)
    angles_XD = torch.arange(num_positions)[:, None] * rates_D
    return torch.where(torch.arange(width) % 2 == 0, angles_XD.sin(), angles_XD.cos())


@torch.no_grad()
def initialise(module: nn.Module, how: Initialisation = "official") -> None:
    """Initialise one module, for `nn.Module.apply`.

    The classes above have their own rules. The others depend on `how`:

    - `official`, as in the code of CANINE and BERT: dense kernels and tables are normal with std 0.02,
      truncated at two std. Convolutions are Glorot-uniform, and biases are 0.
    - `scaled`: dense kernels have std 0.64 / sqrt(inputs), which is 0.02 at BERT-large's width. Layers of a
      small model then have the same initial effect as those of a large one. Tables of learned positions are
      sinusoids of their std.
    """
    if isinstance(module, (nn.Conv1d, GlorotDense)):
        nn.init.xavier_uniform_(module.weight)
    elif isinstance(module, SinusoidTable) or (isinstance(module, PositionTable) and how == "scaled"):
        module.weight.copy_(sinusoids(*module.weight.shape) * module.std * 2**0.5)
    elif isinstance(module, (nn.Linear, nn.Embedding)):
        std = _std(module, how)
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    if isinstance(module, (nn.Linear, nn.Conv1d)) and module.bias is not None:
        nn.init.constant_(module.bias, -2.0 if isinstance(module, GateDense) else 0.0)


def _std(module: nn.Linear | nn.Embedding, how: Initialisation) -> float:
    if isinstance(module, FanInDense):
        return module.in_features**-0.5
    if isinstance(module, ScaledEmbedding):
        return module.std
    if isinstance(module, nn.Linear) and how == "scaled":
        return STD * (USUAL_WIDTH / module.in_features) ** 0.5
    return STD
