"""Biases that position encodings are made of, and which layers and heads share them (DIET, section 3.4).

B batch, U units, Q queries, K keys, H heads, R rank, O offsets, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokenfree.core.errors import UserError
from tokenfree.train.model.common.attention import ALL_HEADS, LayerBias, Workspace, add_hidden
from tokenfree.train.model.common.slots import Positions, Sharing, TrunkSettings

Item = TypeVar("Item")


def table_counts(sharing: Sharing, num_layers: int, num_heads: int) -> tuple[int, int]:
    """The number of layers and of heads that have parameters of their own."""
    return 1 if sharing == "layer_wise" else num_layers, 1 if sharing == "head_wise" else num_heads


def for_layers(distinct: list[Item], num_layers: int) -> list[Item]:
    """One item for each layer: the same object where the layers share."""
    return distinct * num_layers if len(distinct) == 1 else distinct


def select_heads(table: Tensor, heads: slice, dim: int) -> Tensor:
    """The part of `table` for some heads, which lie in the dimension `dim`; all of it where one stands for all."""
    return table if table.shape[dim] == 1 else table.movedim(dim, 0)[heads].movedim(0, dim)


def expand_heads(bias: Tensor, heads: slice, num_heads: int, dim: int) -> Tensor:
    """`bias` for each of `heads` (of `num_heads`), where it was computed for one that stands for all."""
    shape = [-1] * bias.dim()
    shape[dim] = len(range(num_heads)[heads])
    return bias.expand(shape)


def pairs_of_own(sharing: Sharing, pairs: list[int], num_heads: int) -> int:
    """Pairs whose bias is computed: `pairs` holds the visible ones of each layer, summed over its heads."""
    if sharing == "layer_wise":
        return max(pairs)
    return sum(pairs) // (num_heads if sharing == "head_wise" else 1)


def refuse_more_units(num_units: int, max_units: int) -> None:
    """Refuse what a table has no rows for.

    Raises:
        UserError: for more units than rows.
    """
    if num_units > max_units:
        raise UserError(
            f"{num_units} units are more than model.trunk.positions.max_units, {max_units}; cut the text or raise it"
        )


def too_many(max_units: int, num_units: int | None) -> Iterable[str]:
    """The problem of examples of more units than a table has rows."""
    if num_units is not None and num_units > max_units:
        yield f"model.trunk.positions.max_units: {max_units} is less than the units of an example, {num_units}"


def needs_own_queries(trunk: TrunkSettings) -> Iterable[str]:
    """The problem of a code that scales or reads the queries, with a pattern that makes others for some units."""
    if trunk.attention.separate_global_projections:
        yield (
            f"model.trunk.positions.name: {trunk.positions.name} as it is set scales or reads the layer's queries, "
            "which global units have not; set model.trunk.attention.separate_global_projections to false"
        )


KEPT_BYTES = 2**28  # more is computed anew in each call


class FactorBias(LayerBias):
    """queries_i . keys_j from factors [(B,) H, Q, R] and [(B,) H, K, R]; one head stands for all that share."""

    def __init__(self, queries_HQR: Tensor, keys_HKR: Tensor, num_heads: int, *, query_factor: float = 1.0) -> None:
        self.queries, self.keys, self.num_heads = queries_HQR, keys_HKR, num_heads
        self.query_factor = query_factor

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        q_HQR, k_HKR = (select_heads(factor, heads, -3) for factor in (self.queries, self.keys))
        if queries.shape[-1] == 1 and keys.dim() > 1 and keys.shape[-2] == 1:  # all with all, block by block
            bias = _rows(q_HQR, queries[..., 0]) @ _rows(k_HKR, keys[..., 0, :]).transpose(-2, -1)
        else:
            bias = (_rows(q_HQR, queries) * _rows(k_HKR, keys)).sum(dim=-1)
        return expand_heads(bias, heads, self.num_heads, bias.dim() - queries.dim() - 1)

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        q_HQR, k_HKR = (select_heads(factor, heads, -3) for factor in (self.queries, self.keys))
        shape = (*q_HQR.shape[:-1], k_HKR.shape[-2])
        out = None if workspace is None else workspace.take("dense", shape, q_HQR)
        return expand_heads(torch.matmul(q_HQR, k_HKR.transpose(-2, -1), out=out), heads, self.num_heads, -3)


class OffsetBias(LayerBias):
    """One scalar for each head and offset i - j or j - i: `by_offset_HO` holds key - query = -(U - 1) to U - 1."""

    def __init__(self, by_offset_HO: Tensor, num_heads: int, *, query_factor: float = 1.0) -> None:
        self.by_offset, self.num_heads, self.query_factor = by_offset_HO, num_heads, query_factor

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        by_offset_HO = select_heads(self.by_offset, heads, 0)
        index = keys - queries + self.by_offset.shape[1] // 2
        # An embedding, whose backward pass adds all heads of a pair at once; that of indexing takes far longer.
        bias = F.embedding(index, by_offset_HO.transpose(0, 1)).movedim(-1, 0)
        return expand_heads(bias, heads, self.num_heads, 0)

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        if torch.compiler.is_exporting():
            positions_U = torch.arange(self.by_offset.shape[1] // 2 + 1, device=self.by_offset.device)
            return self(heads, positions_U[:, None], positions_U)
        if workspace is not None:
            windows_HUU = _windows(select_heads(self.by_offset, heads, 0))
            out_HUU = workspace.take("dense", windows_HUU.shape, windows_HUU)
            for windows_UU, out_UU in zip(windows_HUU, out_HUU, strict=True):  # so that what `flip` needs stays small
                out_UU.copy_(windows_UU.flip(0))
            return expand_heads(out_HUU, heads, self.num_heads, 0)
        bias_HUU: Tensor = _Toeplitz.apply(select_heads(self.by_offset, heads, 0))  # pyright: ignore[reportAssignmentType]
        return expand_heads(bias_HUU, heads, self.num_heads, 0)


class KeptBias(LayerBias):
    """A bias whose values [H, Q, K] are kept elsewhere, and are not to be written to."""

    def __init__(self, bias: LayerBias, values: Callable[[], Tensor]) -> None:
        self.bias, self.query_factor, self._values = bias, bias.query_factor, values

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        return self.bias(heads, queries, keys)

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        return self._values()[heads]

    def plus_hidden(self, hidden_B11K: Tensor, valid_BK: Tensor, workspace: Workspace | None = None) -> Tensor:
        return add_hidden(self._values().to(hidden_B11K.dtype), hidden_B11K, workspace, in_place=False)


class FixedCode(Positions):
    """A position code of parameters alone (DIET, section 3.1): without gradients its values are kept between calls."""

    num_layers: int
    max_units: int
    has_units_as_keys = True  # else as many mixtures of units as the tables have

    def __init__(self) -> None:
        super().__init__()
        self._kept: tuple[Any, list[Tensor]] | None = None  # and what the values were computed for

    def biases(self, num_units: int) -> Sequence[LayerBias]:
        """Return the bias of each layer, or one for all."""
        raise NotImplementedError

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[LayerBias]:
        """Return the bias of each layer.

        Raises:
            UserError: for more units than `max_units`.
        """
        num_units = units_BUD.shape[1]
        refuse_more_units(num_units, self.max_units)
        biases: list[LayerBias] = [*self.biases(num_units)]
        if self._keeps(biases):
            biases[:] = [KeptBias(bias, partial(self._values, each, num_units)) for each, bias in enumerate(biases)]
        return for_layers(biases, self.num_layers)

    def train(self, mode: bool = True) -> FixedCode:
        """Forget what was kept: weights may change in ways that their version does not show."""
        self._kept = None
        return super().train(mode)

    def _keeps(self, biases: Sequence[LayerBias]) -> bool:
        if self.training or torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return False
        if any(parameter.is_inference() for parameter in self.parameters()):  # these have no version
            return False
        heads = max(parameter.shape[1] for parameter in self.parameters())
        return 4 * len(biases) * heads * self.max_units**2 <= KEPT_BYTES

    def _values(self, number: int, num_units: int) -> Tensor:
        """The values of one of `biases`: the first of those for `max_units`, which are computed once."""
        device = next(self.parameters()).device.type
        precision = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        made_for = [precision, *((each.data_ptr(), each._version) for each in self.parameters())]
        kept = self._kept
        if kept is None or kept[0] != made_for:
            self._kept = kept = made_for, [bias.dense(ALL_HEADS) for bias in self.biases(self.max_units)]
        return kept[1][number][:, :num_units, : num_units if self.has_units_as_keys else None]


class _Toeplitz(torch.autograd.Function):
    """[H, 2U - 1] to [H, U, U]: the value of row i and column j is that of j - i + U - 1.

    The backward pass sums along diagonals as columns of a matrix whose rows are one longer than they seem.
    """

    @staticmethod
    def forward(ctx, by_offset_HO: Tensor) -> Tensor:
        return _windows(by_offset_HO).flip(1)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> Tensor:
        num_units = gradients[0].shape[-1]
        wide = F.pad(gradients[0].flip(1), (0, num_units)).flatten(1)
        return wide[:, : num_units * (2 * num_units - 1)].unflatten(1, (num_units, -1)).sum(dim=1)


def _windows(by_offset_HO: Tensor) -> Tensor:
    """Row i of U, [H, U, U], is what the row U - 1 - i of a Toeplitz matrix holds; in the memory of `by_offset_HO`."""
    return by_offset_HO.unfold(1, (by_offset_HO.shape[1] + 1) // 2, 1)


def _rows(factor: Tensor, index: Tensor) -> Tensor:
    """Rows [..., *index, R] of a factor [..., U, R]."""
    return factor.index_select(-2, index.flatten()).unflatten(-2, index.shape)
