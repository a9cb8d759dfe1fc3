"""Which layers and heads have position parameters of their own, and the limits that tables set (DIET, section 3.4)."""

from collections.abc import Iterable
from typing import TypeVar

from torch import Tensor

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.model.common.slots.trunk import Sharing, TrunkSettings

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
