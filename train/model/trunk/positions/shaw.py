"""Shaw's relative code: keys, and if wanted values, get a learned vector for the offset (Shaw et al. 2018, section 3).

B batch, U units, H heads, E width of a head, L layers, O offsets within the clip distance
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.layers import Dimensions, Heads
from train.pair_bias import LayerBias, OffsetValues, Workspace
from train.trunk.positions.diet_abs import INITIAL_STD
from train.trunk.positions.sharing import Sharing, expand_heads, for_layers, needs_own_queries, table_counts

if TYPE_CHECKING:
    from train.trunk import TrunkConfig


@settings
class Config:
    name: Literal["shaw"] = "shaw"
    clip: Annotated[int, Field(ge=1)] = 128  # offsets beyond have the vector at this distance
    values: bool = False  # vectors for values as well
    sharing: Sharing = "head_wise"

    def build(self, dimensions: Dimensions, trunk: "TrunkConfig") -> "Shaw":
        return Shaw(self, dimensions, trunk.layers)

    def check(self, trunk: "TrunkConfig", num_units: int | None) -> Iterable[str]:
        yield from needs_own_queries(trunk)
        if getattr(trunk.layer, "head_width", None) is not None:
            yield "model.trunk.positions.name: shaw needs heads of width / heads; leave out trunk.layer.head_width"
        if self.values and trunk.attention.name not in ("full", "multi_scale"):
            yield (
                "model.trunk.positions.values: defined with the attention full and multi_scale only, not with "
                f"{trunk.attention.name}; set it to false"
            )


class Shaw(nn.Module):
    """q_i (k_j + a_{j-i}) / sqrt(E), and values v_j + b_{j-i}, with j - i clipped."""

    def __init__(self, config: Config, dimensions: Dimensions, num_layers: int) -> None:
        super().__init__()
        self.num_layers, self.num_heads, self.clip = num_layers, dimensions.heads, config.clip
        counts = table_counts(config.sharing, num_layers, dimensions.heads)
        shape = (*counts, 2 * config.clip + 1, dimensions.head_width)
        self.keys_LHOE = nn.Parameter(INITIAL_STD * torch.randn(shape))
        self.values_LHOE = nn.Parameter(INITIAL_STD * torch.randn(shape)) if config.values else None

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list["ShawBias"]:
        farthest = min(self.clip, units_BUD.shape[1] - 1)
        reachable = slice(self.clip - farthest, self.clip + farthest + 1)
        keys = self.keys_LHOE[:, :, reachable].unbind(0)
        values = [None] * len(keys) if self.values_LHOE is None else self.values_LHOE[:, :, reachable].unbind(0)
        biases = [ShawBias(k, v, self.num_heads) for k, v in zip(keys, values, strict=True)]
        return for_layers(biases, self.num_layers)

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        """Of one forward; `pairs` are the visible ones of each layer, summed over heads."""
        return sum(pairs) * self.keys_LHOE.shape[3] * (1 if self.values_LHOE is None else 2)


class ShawBias(LayerBias):
    """The vectors of one layer; the bias comes with the queries."""

    def __init__(self, keys_HOE: Tensor, values_HOE: Tensor | None, num_heads: int) -> None:
        super().__init__()
        self.keys_HOE, self.values_HOE, self.num_heads = keys_HOE, values_HOE, num_heads

    def bind(self, heads: Heads) -> Heads:
        q_BHUE = heads.queries_BHQE
        by_offset_BHUO = (q_BHUE * q_BHUE.shape[-1] ** -0.5) @ self.keys_HOE.transpose(-2, -1)
        heads = heads._replace(bias=QueryBias(by_offset_BHUO))
        if self.values_HOE is None:
            return heads
        return heads._replace(offset_values=OffsetValues(expand_heads(self.values_HOE, slice(None), self.num_heads, 0)))


class QueryBias(LayerBias):
    """Each query's own scalars for the offsets to its keys, clipped."""

    def __init__(self, by_offset_BHUO: Tensor) -> None:
        super().__init__()
        self.by_offset = by_offset_BHUO

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        return self.by_offset[:, heads][:, :, queries, self._index(queries, keys)]

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        by_offset_BHUO = self.by_offset[:, heads]
        places_U = torch.arange(by_offset_BHUO.shape[2], device=by_offset_BHUO.device)
        index_UU = self._index(places_U[:, None], places_U)
        return by_offset_BHUO.gather(3, index_UU.expand(*by_offset_BHUO.shape[:2], -1, -1))

    def _index(self, queries: Tensor, keys: Tensor) -> Tensor:
        farthest = self.by_offset.shape[3] // 2
        return (keys - queries).clamp(-farthest, farthest) + farthest
