"""Multi-scale attention: each head has its own window size (Guo et al., arXiv 1912.00544).

N blocks, W units of a block, X keys it sees
"""

import math
from collections.abc import Iterable
from typing import Annotated, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.attention import ALL_HEADS, Core, Heads, PairValues, SomeHeadsBias, hide
from tokenfree.train.model.common.basic import Dimensions, dropout, is_exporting, round_up
from tokenfree.train.model.common.slots import AttentionConfig, TrunkConfig

Number = TypeVar("Number", int, Tensor)

Scale = Positive | Annotated[str, Field(pattern=r"^N/[1-9][0-9]*$")]
"""A number of units, or a fraction of the real length N of each example, as in `N/16`."""

WindowConvention = Literal["width", "half"]
Slope = Literal["harmonic", "linear"]


def allocate_heads(
    alpha: float, num_layers: int, num_heads: int, num_scales: int, slope: Slope
) -> list[list[int]]:
    """Return the number of heads of each scale (smallest first) in each layer (lowest first).

    Layer l has the slope alpha / l, or alpha (L - l) / (L - 1) if `linear`; the top layer has 0. The share of
    scale k of S is softmax(slope * (S - k)). Head h gets the first scale whose cumulative share of the heads
    exceeds h. This rule reproduces the paper's example, which the printed rule does not.
    """
    allocation = []
    for layer in range(1, num_layers + 1):
        decay = 1 / layer if slope == "harmonic" else (num_layers - layer) / max(num_layers - 1, 1)
        steepness = 0.0 if layer == num_layers else alpha * decay
        logits = [steepness * (num_scales - k) for k in range(1, num_scales + 1)]
        weights = [math.exp(logit - max(logits)) for logit in logits]
        counts, cumulative = [], 0.0
        for weight in weights:
            cumulative += weight / sum(weights) * num_heads
            # 1e-9 keeps sums that are integers in exact arithmetic from being rounded up.
            upto = min(num_heads, max(0, math.ceil(cumulative - 1e-9)))
            counts.append(upto - sum(counts))
        counts[-1] += num_heads - sum(counts)
        allocation.append(counts)
    return allocation


def resolve_width(scale: int | str, length: int) -> int:
    """Return the width of `scale` among N = `length` real units: odd, at most 2N - 1.

    N/k is floored first.
    """
    return min(scale if isinstance(scale, int) else odd(length // divisor(scale)), 2 * length - 1)


def divisor(scale: str) -> int:
    return int(scale.removeprefix("N/"))


def odd(width: Number) -> Number:
    return width // 2 * 2 + 1


def reach(width: Number, convention: WindowConvention) -> Number:
    """Return how many units a window shows to each side: width // 2 by convention "width", all of width by "half"."""
    return width // 2 if convention == "width" else width


@settings
class Config(AttentionConfig):
    """Multi-scale attention, MSMSA (Guo et al., arXiv 1912.00544): one window per head, one mix of windows per layer.

    Attributes:
        alpha: change of the mix of scales with depth. 0: same mix in all layers; positive: small scales
            prevail in low layers; negative: large scales prevail in low layers.
        scales: candidate window sizes, smallest first: odd numbers of units, or `N/16` for a fraction of the
            units of an example.
        window_convention: `width`: a window of scale w has w units; `half`: it reaches w units to each side.
        slope: decay of alpha with the layer l of L. `harmonic`: alpha / l, as in the paper's example;
            `linear`: alpha (L - l) / (L - 1).
    """

    name: Literal["multi_scale"] = "multi_scale"
    alpha: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    scales: tuple[Scale, ...] = (1, 3, "N/16", "N/8", "N/4")
    window_convention: WindowConvention = "width"
    slope: Slope = "harmonic"

    adds_to_values = True

    def build(self, dimensions: Dimensions, layer: int, num_layers: int) -> "MultiScaleAttention":
        counts = allocate_heads(self.alpha, num_layers, dimensions.heads, len(self.scales), self.slope)[layer]
        return MultiScaleAttention(self.scales, counts, self.window_convention, dimensions.dropout)

    def check(self, trunk: TrunkConfig, num_units: int | None) -> Iterable[str]:
        if not self.scales:
            yield "model.trunk.attention.scales: give at least one scale, such as [1, 3, N/16]"
        for scale in self.scales:
            if isinstance(scale, int) and scale % 2 == 0 and self.window_convention == "width":
                yield f"model.trunk.attention.scales: {scale} is even; windows are symmetric, use {scale + 1}"


class MultiScaleAttention(Core):
    """Attention within windows, where each unit also sees itself. Heads are in the order of their scales."""

    def __init__(
        self, scales: tuple[int | str, ...], counts: list[int], convention: WindowConvention, dropout: float
    ) -> None:
        super().__init__(dropout)
        self.groups = [(scale, count) for scale, count in zip(scales, counts, strict=True) if count]
        self.convention: WindowConvention = convention
        scale, count = self.groups[0]
        self.num_alone = count if isinstance(scale, int) and reach(scale, convention) == 0 else 0

    def forward(self, heads: Heads) -> Tensor:
        num_units = heads.valid_BK.shape[1]
        length_B = heads.valid_BK.sum(dim=1)
        # Heads of width 1 without queries and keys.
        left_out = heads.values_BHKE.shape[1] - heads.queries_BHQE.shape[1]
        contexts, first = [], 0
        for scale, count in self.groups:
            group = slice(first, first + count)
            first += count
            if group.stop <= left_out:
                contexts.append(heads.values_BHKE[:, group])
                continue
            some, block = _of_group(heads, group, left_out), self._block(scale, num_units)
            if block == 0:
                contexts.append(self._itself(some))
            elif block is None:
                contexts.append(self._dense(some, self._reach_B(scale, length_B)))
            else:
                contexts.append(self._blocks(some, self._reach_B(scale, length_B), block))
        # The layer joins the heads of a unit. This memory layout saves it a copy.
        return torch.cat([context.transpose(1, 2) for context in contexts], dim=2).transpose(1, 2)

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int) -> int:
        assert num_queries == num_keys, "windows are defined among the same units"
        total = 0
        for scale, count in self.groups:
            half = min(reach(resolve_width(scale, num_keys), self.convention), num_keys - 1)
            total += count * (num_keys * (2 * half + 1) - half * (half + 1))
        return total

    def _block(self, scale: int | str, num_units: int) -> int | None:
        """Return the size of blocks in the longest example. 0: units attend only to themselves; None: all pairs."""
        if is_exporting():
            return 0 if isinstance(scale, int) and reach(scale, self.convention) == 0 else None
        block = round_up(reach(resolve_width(scale, num_units), self.convention), 16)
        return block if block == 0 or 3 * block < num_units else None

    def _reach_B(self, scale: int | str, length_B: Tensor) -> Tensor:
        if isinstance(scale, int):
            return torch.full_like(length_B, reach(scale, self.convention))
        return reach(odd(length_B // divisor(scale)), self.convention)

    def _itself(self, heads: Heads) -> Tensor:
        """Return the values.

        A softmax of one logit gives queries and keys gradients, for distributed training.
        """
        weights_BHU1 = (heads.queries_BHQE * heads.keys_BHKE).sum(dim=-1, keepdim=True).softmax(dim=-1)
        weights_BHU1 = dropout(weights_BHU1, self.dropout, self.training)
        context_BHUE = weights_BHU1 * heads.values_BHKE
        if heads.offset_values is not None:
            here_11 = torch.zeros(1, 1, dtype=torch.int64, device=context_BHUE.device)
            context_BHUE = context_BHUE + PairValues.of(heads.offset_values, here_11, here_11).average(
                weights_BHU1
            )
        return context_BHUE

    def _dense(self, heads: Heads, reach_B: Tensor) -> Tensor:
        positions_U = torch.arange(heads.queries_BHQE.shape[2], device=reach_B.device)
        visible_BUU = _visible(
            positions_U[:, None], positions_U, heads.valid_BK[:, None, :], reach_B[:, None, None]
        )
        return self.attend_to_all(heads, hide(visible_BUU, heads.queries_BHQE.dtype)[:, None])

    def _blocks(self, heads: Heads, reach_B: Tensor, block: int) -> Tensor:
        q_BHUE, k_BHUE, v_BHUE, valid_BU = (
            heads.queries_BHQE,
            heads.keys_BHKE,
            heads.values_BHKE,
            heads.valid_BK,
        )
        num_units = q_BHUE.shape[2]
        num_blocks = -(-num_units // block)
        rest = num_blocks * block - num_units
        blocks_N = torch.arange(num_blocks, device=q_BHUE.device)[:, None, None] * block
        queries_NW1 = blocks_N + torch.arange(block, device=q_BHUE.device)[:, None]
        keys_N1X = blocks_N + torch.arange(-block, 2 * block, device=q_BHUE.device)

        valid_BNX = torch.nn.functional.pad(valid_BU, (block, block + rest)).unfold(1, 3 * block, block)
        visible_BNWX = _visible(queries_NW1, keys_N1X, valid_BNX[:, :, None], reach_B[:, None, None, None])
        logits_BNHWX = hide(visible_BNWX, q_BHUE.dtype)[:, :, None]
        if heads.bias is not None:
            last = num_units - 1
            bias_BHNWX = heads.bias(ALL_HEADS, queries_NW1.clamp(max=last), keys_N1X.clamp(min=0, max=last))
            logits_BNHWX = logits_BNHWX + bias_BHNWX.transpose(-4, -3)
        # All examples form one row of blocks. Keys of a neighbouring example are hidden.
        q, k, v = (_one_row(x, rest, around) for x, around in ((q_BHUE, 0), (k_BHUE, block), (v_BHUE, block)))
        q_NHWE = q.unflatten(0, (-1, block)).transpose(1, 2)
        k_NHXE, v_NHXE = (x.unfold(0, 3 * block, block).transpose(2, 3) for x in (k, v))
        # Offsets are the same in all blocks, and need no clamping at the ends.
        values = heads.offset_values
        of_pairs = None if values is None else PairValues.of(values, queries_NW1[0], keys_N1X[0])
        context_NHWE = self.attend(q_NHWE, k_NHXE, v_NHXE, logits_BNHWX.flatten(0, 1), of_pairs=of_pairs)
        context_BUHE = context_NHWE.transpose(1, 2).reshape(
            len(valid_BU), num_blocks * block, *context_NHWE.shape[1::2]
        )
        return context_BUHE[:, :num_units].transpose(1, 2)


def _of_group(heads: Heads, group: slice, left_out: int) -> Heads:
    shifted, bias, values = (
        slice(group.start - left_out, group.stop - left_out),
        heads.bias,
        heads.offset_values,
    )
    return heads._replace(
        queries_BHQE=heads.queries_BHQE[:, shifted],
        keys_BHKE=heads.keys_BHKE[:, shifted],
        values_BHKE=heads.values_BHKE[:, group],
        bias=None if bias is None else SomeHeadsBias(bias, group),
        offset_values=None if values is None else values[group],
    )


def _one_row(x_BHUE: Tensor, rest: int, around: int) -> Tensor:
    x_BUHE = x_BHUE.transpose(1, 2)
    if rest == around == 0:
        return x_BUHE.flatten(0, 1)
    batch, num_units, *heads = x_BUHE.shape
    row_UHE = x_BUHE.new_zeros(batch * (num_units + rest) + 2 * around, *heads)
    within_BUHE = row_UHE[around : len(row_UHE) - around].unflatten(0, (batch, num_units + rest))
    within_BUHE[:, :num_units].copy_(x_BUHE)
    return row_UHE


def _visible(queries: Tensor, keys: Tensor, valid: Tensor, half: Tensor) -> Tensor:
    return ((queries - keys).abs() <= half) & valid | (queries == keys)
