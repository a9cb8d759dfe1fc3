"""Sliding-window attention with global units, which attend to all units and are attended to by all (Longformer).

G global units, S strands, N blocks of a strand, W units of a block, X keys of a block: see `Blocks`
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.train.model.common.attention import ALL_HEADS, Core, Heads, LayerBias, hide
from tokenfree.train.model.common.basic import Dense, Dimensions, is_exporting, round_up
from tokenfree.train.model.common.slots import AttentionConfig, TrunkConfig


class Blocks(NamedTuple):
    """Blocks of `size` units of a strand (every `dilation`-th unit), with `window` more keys on each side."""

    num_units: int
    size: int
    window: int
    dilation: int = 1

    @property
    def per_strand(self) -> int:
        return -(-self.num_units // (self.dilation * self.size))

    def queries(self, x_BHUE: Tensor) -> Tensor:
        """Reshape [B, H, U, E] to [B, S, N, H, W, E]."""
        return self._strands(x_BHUE).unflatten(3, (self.per_strand, self.size)).permute(0, 2, 3, 1, 4, 5)

    def keys(self, x_BHUE: Tensor) -> Tensor:
        """Reshape [B, H, U, E] to [B, S, N, H, X, E], with zeros beyond the ends."""
        padded = nn.functional.pad(self._strands(x_BHUE), (0, 0, self.window, self.window))
        return padded.unfold(3, self.size + 2 * self.window, self.size).permute(0, 2, 3, 1, 5, 4)

    def units(self, x_BSNHWE: Tensor) -> Tensor:
        """Reshape [B, S, N, H, W, E] to [B, H, U, E], the inverse of `queries`."""
        return x_BSNHWE.permute(0, 3, 2, 4, 1, 5).flatten(2, 4)[:, :, : self.num_units]

    def in_band(self, device: torch.device) -> Tensor:
        keys_X = torch.arange(self.size + 2 * self.window, device=device)
        steps_WX = keys_X - torch.arange(self.size, device=device)[:, None]
        return (steps_WX >= 0) & (steps_WX <= 2 * self.window)

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the unit indices of queries [S, N, W, 1] and keys [S, N, 1, X], clamped to the first and last unit."""
        strands_S11 = torch.arange(self.dilation, device=device)[:, None, None]
        starts_N1 = torch.arange(self.per_strand, device=device)[:, None] * self.size
        last = self.num_units - 1
        queries_SNW, keys_SNX = (
            ((starts_N1 + steps) * self.dilation + strands_S11).clamp(min=0, max=last)
            for steps in (
                torch.arange(self.size, device=device),
                torch.arange(-self.window, self.size + self.window, device=device),
            )
        )
        return queries_SNW[..., :, None], keys_SNX[..., None, :]

    def _strands(self, x_BHUE: Tensor) -> Tensor:
        length = self.per_strand * self.size
        padded = nn.functional.pad(x_BHUE, (0, 0, 0, length * self.dilation - self.num_units))
        return padded.unflatten(2, (length, self.dilation)).transpose(2, 3)


PaddingQueries = Literal["attend", "zero"]


@settings
class Config(AttentionConfig):
    """Sliding-window and global attention (Longformer, Beltagy et al., arXiv 2004.05150, section 3.1).

    Attributes:
        one_sided_window: number of units to each side that a unit attends to; a list: one per layer, lowest
            first.
        dilation: distance between successive units of the window; a list: one per layer, lowest first.
        global_units: maximum number of global units: CLS, then the question's units in question answering; 0:
            none.
        separate_global_projections: use separate query, key and value projections for global units.
        padding_queries: attention of invalid units, which are never keys. `attend`: they attend as in full
            attention, because CANINE's official mask marks the unit of the last characters invalid; `zero`:
            their context is 0, as in Longformer.
    """

    name: Literal["sliding_global"] = "sliding_global"
    one_sided_window: Positive | tuple[Positive, ...] = 64
    dilation: Positive | tuple[Positive, ...] = 1
    global_units: NonNegative = 1
    separate_global_projections: bool = False
    padding_queries: PaddingQueries = "attend"

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> "SlidingGlobalAttention":
        return SlidingGlobalAttention(self, dimensions, layer)

    def check(self, trunk: TrunkConfig, num_units: int | None) -> Iterable[str]:
        for key, value in (("one_sided_window", self.one_sided_window), ("dilation", self.dilation)):
            if not isinstance(value, int) and len(value) != trunk.layers:
                yield (
                    f"model.trunk.attention.{key}: {len(value)} values for {trunk.layers} layers; give one for all "
                    "layers or one for each"
                )
        separate = "model.trunk.attention.separate_global_projections"
        if self.separate_global_projections and not self.global_units:
            yield f"{separate}: model.trunk.attention.global_units is 0; set it to at least 1 or leave this out"
        if self.separate_global_projections and trunk.layer.head_width is not None:
            yield f"{separate}: heads have the width of model.trunk.layer.head_width; leave one of the two out"


class GlobalUnits(NamedTuple):
    """Indices of the global units of each example. Unused entries hold the number of units."""

    index_BG: Tensor  # int64
    num_units: int
    same: bool  # whether all examples have the same global units, except invalid ones

    @property
    def readable_BG(self) -> Tensor:
        """Index, int64 [B, G], with unit 0 in unused entries; [1, G] if all examples have the same."""
        index_BG = self.index_BG[:1] if self.same else self.index_BG
        return torch.where(index_BG < self.num_units, index_BG, 0)

    def among_units(self) -> Tensor:
        flags = torch.zeros(
            len(self.index_BG), self.num_units + 1, dtype=torch.bool, device=self.index_BG.device
        )
        return flags.scatter(1, self.index_BG, True)[:, : self.num_units]

    def rows(self, x_BHUE: Tensor) -> Tensor:
        if self.same:
            return x_BHUE.index_select(2, self.readable_BG[0])
        index_BHGE = self.readable_BG[:, None, :, None].expand(-1, x_BHUE.shape[1], -1, x_BHUE.shape[3])
        return x_BHUE.gather(2, index_BHGE)

    def replace(self, x_BHUE: Tensor, rows_BHGE: Tensor) -> Tensor:
        index_BHGE = self.index_BG[:, None, :, None].expand_as(rows_BHGE)
        return nn.functional.pad(x_BHUE, (0, 0, 0, 1)).scatter(2, index_BHGE, rows_BHGE)[
            :, :, : self.num_units
        ]


class SlidingGlobalAttention(Core):
    """Attention to the valid units at distances 0, d, 2d, ..., w d to either side (dilation d), and to global units.

    One softmax covers both, and a global unit within the window counts once. A global unit attends to every
    valid unit. A unit without any visible key gets zeros.
    """

    def __init__(self, config: Config, dimensions: Dimensions, layer: int) -> None:
        super().__init__(dimensions.dropout)
        self.window, self.dilation = (
            value if isinstance(value, int) else value[layer]
            for value in (config.one_sided_window, config.dilation)
        )
        self.num_global = config.global_units
        self.zero_padding = config.padding_queries == "zero"
        self.separate = config.separate_global_projections
        if self.separate:
            width = dimensions.width
            self.query, self.key, self.value = Dense(width, width), Dense(width, width), Dense(width, width)

    def forward(self, heads: Heads) -> Tensor:
        num_units = heads.valid_BK.shape[1]
        chosen = self._choose(heads)
        blocks = self._blocks(num_units, 0 if chosen is None else chosen.index_BG.shape[1])
        context_BHUE = self._dense(heads, chosen) if blocks is None else self._banded(heads, chosen, blocks)
        if chosen is not None:
            context_BHUE = chosen.replace(context_BHUE, self._of_global(heads, chosen))
        if self.zero_padding:
            context_BHUE = context_BHUE.masked_fill(~heads.valid_BK[:, None, :, None], 0)
        return context_BHUE

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        assert num_queries == num_keys, "windows are defined among the same units"
        num_global = min(self.num_global, num_keys)
        rest = num_keys - num_global
        steps = min(self.window, max(rest - 1, 0) // self.dilation)
        band = rest + 2 * (steps * rest - self.dilation * steps * (steps + 1) // 2)
        return num_heads * (2 * num_global * num_keys - num_global**2 + band)

    def projection_multiply_accumulates(self, num_units: int, width: int) -> int:
        return (2 * num_units + min(self.num_global, num_units)) * width**2 if self.separate else 0

    def copy_projections(self, layer: nn.Module) -> list[str]:
        projections = ("query", "key", "value") if self.separate else ()
        for name in projections:
            self.get_submodule(name).load_state_dict(layer.get_submodule(name).state_dict())
        return [f"{name}.{kind}" for name in projections for kind in ("weight", "bias")]

    def _choose(self, heads: Heads) -> GlobalUnits | None:
        """Choose CLS and the first marked units up to the maximum, if valid. Shapes do not depend on data."""
        valid_BU, marked_BU = heads.valid_BK, heads.global_BK
        num_units = valid_BU.shape[1]
        room = min(self.num_global, num_units)
        if room == 0:
            return None
        if marked_BU is None:
            return GlobalUnits(torch.where(valid_BU[:, :1], 0, num_units), num_units, same=True)
        positions_U = torch.arange(num_units, device=valid_BU.device)
        is_global_BU = (marked_BU | (positions_U == 0)) & valid_BU
        positions_BU = torch.where(is_global_BU, positions_U, num_units)
        # The same shape for any number of units.
        if is_exporting():
            unused_BG = torch.full_like(positions_BU[:, :1], num_units).expand(-1, self.num_global)
            positions_BU, room = torch.cat([positions_BU, unused_BG], dim=1), self.num_global
        return GlobalUnits(positions_BU.topk(room, largest=False, sorted=True).values, num_units, same=False)

    def _blocks(self, num_units: int, num_global: int) -> Blocks | None:
        if is_exporting():
            return None
        size = min(round_up(self.window, 16), -(-num_units // self.dilation))
        if size + 2 * self.window + num_global >= num_units:
            return None
        return Blocks(num_units, size, self.window, self.dilation)

    def _dense(self, heads: Heads, chosen: GlobalUnits | None) -> Tensor:
        positions_U = torch.arange(heads.valid_BK.shape[1], device=heads.valid_BK.device)
        distance_UU = (positions_U[:, None] - positions_U).abs()
        allowed_BUU = ((distance_UU <= self.window * self.dilation) & (distance_UU % self.dilation == 0))[
            None
        ]
        if chosen is not None:
            allowed_BUU = allowed_BUU | chosen.among_units()[:, None, :]
        visible_BUU = allowed_BUU & heads.valid_BK[:, None, :]
        context_BHUE = self.attend_to_all(heads, hide(visible_BUU, heads.queries_BHQE.dtype)[:, None])
        return context_BHUE.masked_fill(~visible_BUU.any(dim=-1)[:, None, :, None], 0)

    def _banded(self, heads: Heads, chosen: GlobalUnits | None, blocks: Blocks) -> Tensor:
        q_BSNHWE = blocks.queries(heads.queries_BHQE)
        k_BSNHXE, v_BSNHXE = blocks.keys(heads.keys_BHKE), blocks.keys(heads.values_BHKE)
        local_BU = heads.valid_BK if chosen is None else heads.valid_BK & ~chosen.among_units()
        local_BSNX = blocks.keys(local_BU[:, None, :, None])[..., 0, :, 0]
        visible_BSNWX = blocks.in_band(local_BU.device) & local_BSNX[..., None, :]
        bias = None if heads.bias is None else _bias_of_blocks(heads.bias, blocks, chosen, local_BU.device)
        if chosen is not None:
            k_BSNHXE = _beside(chosen.rows(heads.keys_BHKE)[:, None, None], k_BSNHXE, -2)
            v_BSNHXE = _beside(chosen.rows(heads.values_BHKE)[:, None, None], v_BSNHXE, -2)
            present_BG = chosen.index_BG < chosen.num_units
            visible_BSNWX = _beside(present_BG[:, None, None, None], visible_BSNWX, -1)
        logits = hide(visible_BSNWX, q_BSNHWE.dtype)[:, :, :, None]
        logits = logits if bias is None else logits + bias
        blocks_of_batch = q_BSNHWE.shape[:3]
        q, k, v, logits = (
            x.expand(*blocks_of_batch, *x.shape[3:]).flatten(0, 2)
            for x in (q_BSNHWE, k_BSNHXE, v_BSNHXE, logits)
        )
        context_BSNHWE = self.attend(q, k, v, logits).unflatten(0, blocks_of_batch)
        return blocks.units(context_BSNHWE.masked_fill(~visible_BSNWX.any(dim=-1)[:, :, :, None, :, None], 0))

    def _of_global(self, heads: Heads, chosen: GlobalUnits) -> Tensor:
        q_BHGE, k_BHUE, v_BHUE = chosen.rows(heads.queries_BHQE), heads.keys_BHKE, heads.values_BHKE
        if self.separate:
            num_heads, source_BUD = k_BHUE.shape[1], heads.source_BKD
            chosen_BGD = chosen.rows(source_BUD[:, None])[:, 0]
            q_BHGE, k_BHUE, v_BHUE = (
                projection(x).unflatten(-1, (num_heads, -1)).transpose(1, 2)
                for projection, x in (
                    (self.query, chosen_BGD),
                    (self.key, source_BUD),
                    (self.value, source_BUD),
                )
            )
        bias = hide(heads.valid_BK, q_BHGE.dtype)[:, None, None, :]
        if heads.bias is not None:
            queries_BG1 = chosen.readable_BG[:, :, None]
            keys_11U = torch.arange(chosen.num_units, device=queries_BG1.device)[None, None]
            bias = bias + _per_example(heads.bias, queries_BG1, keys_11U)
        return self.attend(q_BHGE, k_BHUE, v_BHUE, bias)


def _bias_of_blocks(
    bias: LayerBias, blocks: Blocks, chosen: GlobalUnits | None, device: torch.device
) -> Tensor:
    """Return the bias of the global keys, if any, followed by that of the windows: [B or 1, S, N, H, W, G + X]."""
    queries_SNW1, keys_SN1X = blocks.positions(device)
    of_band = _per_example(bias, queries_SNW1[None], keys_SN1X[None]).movedim(1, 3)
    if chosen is None:
        return of_band
    keys_BSNWG = chosen.readable_BG[:, None, None, None]
    of_global = _per_example(bias, queries_SNW1[None], keys_BSNWG).movedim(1, 3)
    batch = max(len(of_band), len(of_global))
    return torch.cat([x.expand(batch, *x.shape[1:]) for x in (of_global, of_band)], dim=-1)


def _per_example(bias: LayerBias, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the bias [B or 1, H, *pairs] of each example's own pairs, given by indices [B or 1, *pairs]."""
    logits = bias(ALL_HEADS, queries, keys)
    if logits.dim() == queries.dim() + 1:  # [H, B or 1, *pairs]
        return logits.transpose(0, 1)
    if logits.shape[2] == 1:  # [B, H, 1, *pairs]
        return logits.squeeze(2)
    return logits.diagonal(dim1=0, dim2=2).movedim(-1, 0)


def _beside(of_global: Tensor, of_band: Tensor, dim: int) -> Tensor:
    shape = list(of_band.shape)
    shape[dim] = of_global.shape[dim]
    return torch.cat([of_global.expand(shape), of_band], dim=dim)
