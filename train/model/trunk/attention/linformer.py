"""Linformer: keys and values from k mixtures of all units, in time and memory linear in the length (Wang et al. 2020).

B batch, U units, K mixtures, D width
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.errors import UserError
from preprocess.settings import settings
from train.layers import Core, Dimensions, Heads
from train.pair_bias import every_pair

if TYPE_CHECKING:
    from train.trunk import TrunkConfig

POSITIONS = ("none", "diet_abs")


@settings
class Config:
    name: Literal["linformer"] = "linformer"
    projection: Annotated[int, Field(ge=1)] = 32  # mixtures that a unit sees
    max_units: Annotated[int, Field(ge=1)] = 512

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> "LinformerAttention":
        """The core of layer `layer` (0 is the lowest) of `num_layers`."""
        return LinformerAttention(self, dimensions.dropout)

    def check(self, trunk: "TrunkConfig", num_units: int | None) -> Iterable[str]:
        if trunk.positions.name not in POSITIONS:
            yield (
                f"model.trunk.positions.name: {trunk.positions.name} is not defined with linformer, whose keys have "
                f"no place; use {' or '.join(POSITIONS)}, or positions of the embedder"
            )
        if num_units is not None and num_units > self.max_units:
            yield (
                f"model.trunk.attention.max_units: {self.max_units} is less than the units of an example, {num_units}"
            )


class LinformerAttention(Core):
    """Keys and values are projected from E X, with one matrix E [K, max_units] for both and all heads of a layer."""

    def __init__(self, config: Config, dropout: float) -> None:
        super().__init__(dropout)
        self.max_units = config.max_units
        self.mixtures_KU = nn.Parameter(torch.randn(config.projection, config.max_units) * config.max_units**-0.5)

    def source(self, x_BUD: Tensor, valid_BU: Tensor) -> tuple[Tensor, Tensor]:
        """E X [B, K, D], from the rows of valid units only; every mixture is a valid key."""
        num_units = x_BUD.shape[1]
        if num_units > self.max_units:
            raise UserError(
                f"{num_units} units are more than model.trunk.attention.max_units, {self.max_units}; cut the text or "
                "raise it"
            )
        mixed_BKD = self.mixtures_KU[:, :num_units] @ x_BUD.masked_fill(~valid_BU[..., None], 0)
        return mixed_BKD, torch.ones(mixed_BKD.shape[:2], dtype=torch.bool, device=x_BUD.device)

    def forward(self, heads: Heads) -> Tensor:
        q_BHUE = heads.queries_BHQE
        if heads.bias is None:
            bias = q_BHUE.new_zeros(1, 1)
        else:
            queries_U1 = torch.arange(q_BHUE.shape[2], device=q_BHUE.device)[:, None]
            keys_1K = torch.arange(len(self.mixtures_KU), device=q_BHUE.device)[None, :]
            bias = every_pair(heads.bias, slice(None), queries_U1, keys_1K)
        return self.attend(q_BHUE, heads.keys_BHKE, heads.values_BHKE, bias)

    def num_keys(self, num_units: int) -> int:
        return len(self.mixtures_KU)

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        return num_heads * num_queries * num_keys

    def projection_multiply_accumulates(self, num_units: int, width: int) -> int:
        return len(self.mixtures_KU) * num_units * width
