"""TUPE: untied correlations of absolute positions, scalars per offset, and separate scalars for CLS."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import FactorBias, LayerBias, OffsetBias, SumBias
from tokenfree.train.model.common.basic import Dimensions, refuse_more, too_many
from tokenfree.train.model.common.slots import (
    MAX_UNITS,
    Positions,
    PositionsConfig,
    TrunkConfig,
    needs_own_queries,
)


@settings
class Config(PositionsConfig):
    """TUPE (Ke, He, Liu, arXiv 2006.15595, section 3): position correlations, computed separately from the content's.

    Attributes:
        relative: add a learned scalar per offset. true: TUPE-R; false: TUPE-A.
        untie_cls: replace the correlations of CLS, unit 0, by two learned scalars per head.
        max_units: maximum number of units of an example; number of rows of the position table.
    """

    name: Literal["tupe"] = "tupe"
    relative: bool = True
    untie_cls: bool = True
    max_units: Positive = 512

    def build(self, dimensions: Dimensions, trunk: TrunkConfig) -> "Tupe":
        return Tupe(self, dimensions)

    def check(self, trunk: TrunkConfig, num_units: int | None) -> Iterable[str]:
        yield from too_many(num_units, self.max_units, "units", MAX_UNITS)
        yield from needs_own_queries(trunk)


class Tupe(Positions):
    """(p_i U_Q)(p_j U_K)^T / sqrt(2 E) + b_{j-i}, once for all layers; theta_1 if i is CLS, theta_2 if only j is."""

    stacked = {"by_offset_HO": 0, "thetas_2H": 0}  # see train/optimizers/base.py

    def __init__(self, config: Config, dimensions: Dimensions) -> None:
        super().__init__()
        width = dimensions.width
        self.num_heads, self.max_units = dimensions.heads, config.max_units
        self.table = nn.Embedding(config.max_units, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        offsets = 2 * config.max_units - 1
        self.by_offset_HO = nn.Parameter(torch.zeros(dimensions.heads, offsets)) if config.relative else None
        self.thetas_2H = nn.Parameter(torch.zeros(2, dimensions.heads)) if config.untie_cls else None

    def forward(self, units_BUD: Tensor, valid_BU: Tensor) -> list[LayerBias]:
        num_units = units_BUD.shape[1]
        refuse_more(num_units, self.max_units, "units", MAX_UNITS)
        p_UD = self.table.weight[:num_units]
        q_HUE, k_HUE = (
            layer(p_UD).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
            for layer in (self.query, self.key)
        )
        bias: LayerBias = FactorBias(q_HUE * (2 * q_HUE.shape[-1]) ** -0.5, k_HUE, self.num_heads)
        if self.by_offset_HO is not None:
            reachable = slice(self.max_units - num_units, self.max_units + num_units - 1)
            bias = SumBias(bias, OffsetBias(self.by_offset_HO[:, reachable], self.num_heads))
        return [TupeBias(bias, self.thetas_2H, num_units)]

    def multiply_accumulates(self, num_units: int, pairs: list[int]) -> int:
        width = self.table.embedding_dim
        return 2 * num_units * width**2 + max(pairs) * (width // self.num_heads)


class TupeBias(LayerBias):
    query_factor = 2**-0.5

    def __init__(self, bias: LayerBias, thetas_2H: Tensor | None, num_units: int) -> None:
        self.bias, self.thetas_2H, self.num_units = bias, thetas_2H, num_units

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        return self._untie(self.bias(heads, queries, keys), heads, queries, keys)

    def dense(self, heads: slice) -> Tensor:
        bias_HUU = self.bias.dense(heads)
        positions_U = torch.arange(self.num_units, device=bias_HUU.device)
        return self._untie(bias_HUU, heads, positions_U[:, None], positions_U[None, :])

    def _untie(self, bias: Tensor, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        if self.thetas_2H is None:
            return bias
        from_cls, to_cls = (theta_H[heads].view(-1, *[1] * (bias.dim() - 1)) for theta_H in self.thetas_2H)
        return torch.where(queries == 0, from_cls, torch.where(keys == 0, to_cls, bias))
