"""Layers and records that the parts of the model share: layers, initial weights, dimensions, grouping.

B batch, C characters, U units after DOWN, D width, X rows of a table
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.train.model.common.kernels import Dense, cast_for_products, embedding

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
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


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
