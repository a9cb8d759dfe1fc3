"""UP of CANINE: repeated units, concatenated with characters, a convolution and a full-attention layer.

N blocks of characters, R last characters, K kernel or keys
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.common.basic import (
    Activation,
    Cost,
    Dimensions,
    Dropout,
    Grouping,
    activate,
    any_of_units,
    count_parameters,
    gather_rows,
    is_exporting,
    layer_norm,
    linear,
)
from tokenfree.train.model.common.slots import Upsampler, UpsamplerConfig
from tokenfree.train.model.layers.bert import BertLayer


@settings
class Options(UpsamplerConfig):
    """Settings that the variants of CANINE's UP share.

    Values other than the defaults are ablations of its Table 6.

    Attributes:
        kernel: width of the convolution in characters.
        keys: keys of the final attention layer: `characters` or `units`.
        targeted: compute the final layer only for the requested characters.
    """

    kernel: Positive = 4
    keys: Literal["characters", "units"] = "characters"
    targeted: bool = True


@settings
class Config(Options):
    """Upsampling of CANINE (Clark et al., arXiv 2103.06874, section 3.1): concatenation, convolution, full layer."""

    name: Literal["repeat_concat"] = "repeat_concat"

    def build(self, dimensions: Dimensions) -> "RepeatConcat":
        return RepeatConcat(self, dimensions)


class RepeatConcat(Upsampler):
    """LN(GELU(conv([characters ; repeated units]))), then a full-attention layer, only at the targets if given."""

    def __init__(self, options: Options, dimensions: Dimensions, num_channels: int | None = None) -> None:
        super().__init__()
        width = dimensions.width
        self.attends_to_units, self.targeted = options.keys == "units", options.targeted
        self.activation: Activation = dimensions.activation
        self.convolution = nn.Conv1d(
            num_channels or dimensions.character_width + width, width, options.kernel
        )
        self.norm = layer_norm(width)
        self.dropout = Dropout(dimensions.dropout)
        self.final = BertLayer(dimensions, FullAttention(dimensions.dropout))

    def forward(
        self,
        units_BUD: Tensor,
        grouping: Grouping,
        characters_BCD: Tensor,
        mask_BC: Tensor,
        targets_BP: Tensor | None = None,
    ) -> Tensor:
        """Return vectors of all characters or of the targets, whose values are the same: there is one layer."""
        h_BCD = activate(self.convolve(units_BUD, grouping, characters_BCD), self.activation)
        h_BCD = self.dropout(self.norm(self.add_residuals(h_BCD, units_BUD, grouping, characters_BCD)))
        queries_BPD = h_BCD if targets_BP is None or not self.targeted else gather_rows(h_BCD, targets_BP)
        keys_BKD, valid_BK = h_BCD, mask_BC
        if self.attends_to_units:
            keys_BKD, valid_BK = units_BUD, any_of_units(mask_BC, grouping, units_BUD.shape[1])
            valid_BK = valid_BK | (torch.arange(valid_BK.shape[1], device=valid_BK.device) == 0)  # CLS
        y_BPD = self.final(keys_BKD, valid_BK, queries_BQD=queries_BPD)
        return y_BPD if targets_BP is None or self.targeted else gather_rows(y_BPD, targets_BP)

    def add_residuals(
        self, h_BCD: Tensor, units_BUD: Tensor, grouping: Grouping, characters_BCD: Tensor
    ) -> Tensor:
        """Return the input of the LayerNorm after the convolution, [B, C, D].

        The paper adds no residuals here.
        """
        return h_BCD

    def convolve(self, units_BUD: Tensor, grouping: Grouping, characters_BCD: Tensor) -> Tensor:
        """Return the convolution over [characters ; repeated units].

        Its half over units is computed once per unit.
        """
        width = characters_BCD.shape[-1]
        left, right = same_padding(self.convolution.kernel_size[0])
        padded_BCD = nn.functional.pad(characters_BCD, (0, 0, left, right))
        kernel_DDK, bias_D = self.convolution.weight, self.convolution.bias
        y_BCD = convolve(padded_BCD, kernel_DDK[:, :width], bias_D)
        # This order makes the sum contiguous. Otherwise its layout would differ from that of its gradient,
        # and the backward pass of GELU would take eight times as long: 5 ms of a step of 160 ms with
        # canine-fast-tiny.
        return convolve_units(units_BUD, grouping, kernel_DDK[:, width:], y_BCD.shape[1]) + y_BCD

    def costs(self, length: int, num_targets: int | None, num_units: int) -> list[Cost]:
        width, kernel = self.convolution.out_channels, self.convolution.kernel_size[0]
        rows = length if num_targets is None or not self.targeted else num_targets
        parameters = count_parameters(self.convolution, self.norm)
        final = self.final.multiply_accumulates(num_units if self.attends_to_units else length, rows)
        convolution = length * kernel * self.convolution.in_channels * width
        return [
            Cost("up convolution + norm", (length, width), parameters, convolution),
            Cost("final layer", (rows, width), count_parameters(self.final), final),
        ]


def convolve(x_BCD: Tensor, kernel_DDK: Tensor, bias_D: Tensor | None) -> Tensor:
    """Return the convolution without padding over characters, as F.conv1d computes it over the last dimension."""
    x_BDC = x_BCD.transpose(1, 2)
    # In bfloat16, oneDNN is faster by a fifth with this layout, which is that of all other tensors. In
    # float32, its gradient would take twice as long.
    if x_BCD.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        kernel_DD1K = kernel_DDK[:, :, None].contiguous(memory_format=torch.channels_last)
        return nn.functional.conv2d(x_BDC[:, :, None], kernel_DD1K, bias_D)[:, :, 0].transpose(1, 2)
    return nn.functional.conv1d(x_BDC, kernel_DDK, bias_D).transpose(1, 2)


def convolve_units(units_BUD: Tensor, grouping: Grouping, kernel_DDK: Tensor, num_characters: int) -> Tensor:
    """Return the "same" convolution of units repeated to characters, [B, C, D], for any grouping."""
    if grouping.rate is not None and is_faster_by_unit():
        return convolve_repeated(units_BUD, kernel_DDK, grouping.rate, num_characters)
    padding = (0, 0, *same_padding(kernel_DDK.shape[-1]))
    padded_BCD = nn.functional.pad(repeat_units(units_BUD, grouping), padding)
    return nn.functional.conv1d(padded_BCD.transpose(1, 2), kernel_DDK).transpose(1, 2)


def is_faster_by_unit() -> bool:
    """Return True if products may be computed once per unit, which depends on the length."""
    return not is_exporting()


def repeat_units(units_BUD: Tensor, grouping: Grouping) -> Tensor:
    return gather_rows(units_BUD, grouping.unit_BC.expand(units_BUD.shape[0], -1))


def convolve_repeated(units_BUD: Tensor, kernel_DDK: Tensor, rate: int, num_characters: int) -> Tensor:
    """Return the "same" convolution of units repeated to `num_characters` characters, [B, C, D].

    Products are computed once per unit. Kernel position k of character rate * j + t reads the unit of block
    j + floor((t - left + k) / rate). So the result sums a few products of neighbouring blocks, the same ones
    for all j.
    """
    kernel = kernel_DDK.shape[-1]
    left, right = same_padding(kernel)
    # Units 1, 2, ... stand for blocks 0, 1, ... The last unit also stands for blocks without a unit of their
    # own.
    num_blocks = -(-num_characters // rate)
    last_BUD = units_BUD[:, -1:].expand(-1, num_blocks - units_BUD.shape[1] + 1, -1)
    blocks_BND = torch.cat([units_BUD[:, 1:], last_BUD], dim=1)
    products = linear(blocks_BND, kernel_DDK.permute(2, 0, 1).flatten(0, 1)).chunk(kernel, dim=-1)
    rows = []
    for t in range(rate):
        shifts = [(t - left + k) // rate for k in range(kernel)]
        parts = [
            _shift(
                sum(product for product, other in zip(products, shifts, strict=True) if other == shift), shift
            )
            for shift in sorted(set(shifts))
        ]
        rows.append(sum(parts[1:], start=parts[0]))
    y_BCD = torch.stack(rows, dim=2).flatten(1, 2)[:, :num_characters]
    return y_BCD - _beyond_the_end(products, left, right, y_BCD)


def _shift(x_BND: Any, shift: int) -> Tensor:
    """Return row j + shift at j: zeros before the first row, and the last row repeated after it."""
    if shift == 0:
        return x_BND
    if shift < 0:
        return nn.functional.pad(x_BND, (0, 0, -shift, 0))[:, : x_BND.shape[1]]
    return torch.cat([x_BND[:, shift:], x_BND[:, -1:].expand(-1, min(shift, x_BND.shape[1]), -1)], dim=1)


def _beyond_the_end(products: tuple[Tensor, ...], left: int, right: int, like_BCD: Tensor) -> Tensor:
    """Return what the last characters got from the repeated last unit beyond the end, where zeros belong."""
    num_characters = like_BCD.shape[1]
    excess, total = [], torch.zeros_like(like_BCD[:, 0])
    for k in reversed(range(left + 1, left + 1 + right)):
        total = total + products[k][:, -1]
        excess.append(total)
    excess_BRD = torch.stack(excess, dim=1) if excess else like_BCD[:, :0]
    excess_BRD = excess_BRD[:, -num_characters:] if right else excess_BRD
    return nn.functional.pad(excess_BRD, (0, 0, num_characters - excess_BRD.shape[1], 0))


def same_padding(kernel: int) -> tuple[int, int]:
    """Return the zeros to the left and right for a stride-1 convolution that keeps the length, more on the right."""
    return (kernel - 1) // 2, kernel // 2
