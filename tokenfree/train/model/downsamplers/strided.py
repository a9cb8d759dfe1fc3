"""Base of downsamplers with a fixed rate: local layers before pooling, CLS as the first unit, LayerNorm at the end.

X values of a group of characters, N blocks
"""

import dataclasses
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import Core, Heads, hide
from tokenfree.train.model.common.basic import (
    Activation,
    Cost,
    Dense,
    Dimensions,
    Downsampled,
    Grouping,
    count_parameters,
    is_exporting,
    layer_norm,
)
from tokenfree.train.model.common.slots import Downsampler, DownsamplerConfig
from tokenfree.train.model.layers.bert import BertLayer


@settings
class StridedConfig(DownsamplerConfig):
    """Settings that all downsamplers of a fixed rate share.

    Attributes:
        rate: number of characters per unit; characters left over at the end share the last unit.
        block: number of characters per block of the local layers, which attend only within a block.
        layers: number of local layers; 0: none.
        align_mask: mask a unit by its own characters and not, as the official code does, by those of the next
            unit.
    """

    rate: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    block: Positive = 128
    layers: Annotated[int, Field(ge=0, le=1000)] = 1
    align_mask: bool = False

    changes_width = True

    def num_units(self, length: int) -> int:
        return max(length, self.rate) // self.rate


class BlockAttention(Core):
    """Attention to the valid keys of the query's own block [i * block, (i + 1) * block), without exception for CLS."""

    def __init__(self, block: int, dropout: float) -> None:
        super().__init__(dropout)
        self.block = block

    def forward(self, heads: Heads) -> Tensor:
        q_BHCE, k_BHCE, v_BHCE = heads.queries_BHQE, heads.keys_BHKE, heads.values_BHKE
        bias_BC = hide(heads.valid_BK, q_BHCE.dtype)
        if is_exporting():
            return self._of_any_length(q_BHCE, k_BHCE, v_BHCE, bias_BC)
        num_characters = q_BHCE.shape[2]
        whole = num_characters // self.block * self.block
        contexts = []
        # The short last block is a second call. Padding would change the equal weights of a block without
        # valid keys.
        for start, end in ((0, whole), (whole, num_characters)):
            if start < end:
                num_blocks = max(1, (end - start) // self.block)
                q, k, v = (
                    x[:, :, start:end].unflatten(2, (num_blocks, -1)) for x in (q_BHCE, k_BHCE, v_BHCE)
                )
                contexts.append(self._blocks(q, k, v, bias_BC[:, start:end].unflatten(1, (num_blocks, -1))))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts, dim=2)

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        num_blocks, rest = divmod(num_keys, self.block)
        return num_heads * (num_blocks * self.block**2 + rest**2)

    def _of_any_length(self, q_BHCE: Tensor, k_BHCE: Tensor, v_BHCE: Tensor, bias_BC: Tensor) -> Tensor:
        """Compute the same in one call, for graphs with unknown shapes.

        The padding of the last block has no weight.
        """
        num_characters = q_BHCE.shape[2]
        missing = (num_characters + self.block - 1) // self.block * self.block - num_characters
        q, k, v = (
            nn.functional.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, self.block))
            for x in (q_BHCE, k_BHCE, v_BHCE)
        )
        bias_BNC = nn.functional.pad(bias_BC, (0, missing), value=-torch.inf).unflatten(1, (-1, self.block))
        return self._blocks(q, k, v, bias_BNC)[:, :, :num_characters]

    def _blocks(self, q_BHNCE: Tensor, k_BHNCE: Tensor, v_BHNCE: Tensor, bias_BNC: Tensor) -> Tensor:
        # Merge blocks into the batch.
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q_BHNCE, k_BHNCE, v_BHNCE))
        context = self.attend(q, k, v, bias_BNC.flatten(0, 1)[:, None, None, :])
        return context.unflatten(0, bias_BNC.shape[:2]).transpose(1, 2).flatten(2, 3)


class Strided(Downsampler):
    """Local layers, then CLS and one unit per `rate` characters, then LayerNorm.

    A separate layer widens CLS.
    """

    def __init__(self, dimensions: Dimensions, config: StridedConfig) -> None:
        super().__init__()
        width, narrow = dimensions.width, dimensions.character_width
        characters = dataclasses.replace(
            dimensions, width=narrow, inner_width=dimensions.inner_width * narrow // width
        )
        self.rate = self.min_characters = config.rate
        self.align_mask = config.align_mask
        self.activation: Activation = dimensions.activation
        self.local = nn.ModuleList(
            BertLayer(characters, BlockAttention(config.block, dimensions.dropout))
            for _ in range(config.layers)
        )
        self.add_pooling(narrow, width)
        self.widen = nn.Identity() if narrow == width else Dense(narrow, width)
        self.norm = layer_norm(width)

    def add_pooling(self, narrow: int, width: int) -> None:
        """Create the weights of `pool`, for characters of width `narrow` and units of `width`."""

    def pool(self, groups_BUX: Tensor) -> Tensor:
        """Return units [B, U, D] of groups of `rate` characters, whose vectors are concatenated in [B, U, X]."""
        raise NotImplementedError

    def pooling_cost(self, num_units: int) -> Cost:
        """Return the cost of `pool` and the LayerNorm after it for `num_units` units."""
        raise NotImplementedError

    def forward(self, x_BCD: Tensor, mask_BC: Tensor) -> Downsampled:
        """Return floor(C / rate) units: CLS, then one per group of `rate` characters except the last.

        In the official code, mask entry j is true if group j has a real character, but group j is held by
        unit j + 1. So the unit of the last real group is never a key. With `align_mask`, a unit has the entry of
        its group.
        """
        for layer in self.local:
            x_BCD = layer(x_BCD, mask_BC)
        num_units = self.num_units(x_BCD.shape[1])
        groups_BUX = (
            x_BCD[:, : (num_units - 1) * self.rate].unflatten(1, (num_units - 1, self.rate)).flatten(2)
        )
        units_BUD = self.norm(torch.cat([self.widened(x_BCD[:, :1]), self.pool(groups_BUX)], dim=1))
        valid_BU = mask_BC[:, : num_units * self.rate].unflatten(1, (num_units, self.rate)).any(dim=-1)
        if self.align_mask:
            valid_BU = torch.cat([mask_BC[:, :1], valid_BU[:, :-1]], dim=1)
        grouping = Grouping(unit_of_characters(x_BCD.shape[1], self.rate, x_BCD.device)[None], self.rate)
        return Downsampled(units_BUD, valid_BU, grouping, x_BCD)

    def widened(self, x_BCD: Tensor) -> Tensor:
        return self.widen(x_BCD)

    def num_units(self, num_characters: int) -> int:
        return max(num_characters, self.min_characters) // self.rate

    def costs(self, length: int) -> list[Cost]:
        layers: list[Any] = list(self.local)
        narrow = (
            self.norm.normalized_shape[0] if isinstance(self.widen, nn.Identity) else self.widen.in_features
        )
        local = sum(layer.multiply_accumulates(length) for layer in layers)
        return [
            Cost("local layer", (length, narrow), count_parameters(self.local), local),
            self.pooling_cost(self.num_units(length)),
        ]


def unit_of_characters(num_characters: int, rate: int, device: torch.device) -> Tensor:
    """Return the unit of each character, int64 [C].

    Characters without a unit of their own get the last one.
    """
    characters_C = torch.arange(num_characters, device=device)
    return (1 + characters_C // rate).clamp(max=num_characters // rate - 1)
