"""The encoder Y = UP(ENCODE(DOWN(embed(x)))), put together from one variant for each slot of the frame.

B batch, C characters, P targets, U units after DOWN, D width
"""

import dataclasses
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from preprocess.errors import UserError
from preprocess.settings import Slot, part, settings
from train.downsamplers.grouping import Downsampled
from train.layers import Cost, Dimensions, count_parameters, initialise
from train.trunk import TrunkConfig


@settings
class ModelConfig:
    """What the encoder is made of; the defaults are CANINE, base size."""

    width: Annotated[int, Field(ge=1)] = 768
    embedder: Annotated[Any, Slot("train.embedders", "codepoint_hash")] = part("train.embedders", "codepoint_hash")
    downsampler: Annotated[Any, Slot("train.downsamplers", "strided_conv")] = part("train.downsamplers", "strided_conv")
    trunk: TrunkConfig = dataclasses.field(default_factory=TrunkConfig)
    upsampler: Annotated[Any, Slot("train.upsamplers", "repeat_concat")] = part("train.upsamplers", "repeat_concat")

    @property
    def dimensions(self) -> Dimensions:
        """Width, heads, inner width, dropout and activation of all layers."""
        trunk = self.trunk
        inner_width = 4 * self.width if trunk.inner_width is None else trunk.inner_width
        return Dimensions(self.width, trunk.heads, inner_width, trunk.dropout, trunk.activation)

    def build(self) -> "Encoder":
        """The encoder with fresh weights from torch's global generator.

        Raises:
            UserError: where parts do not fit together (see `check`).
        """
        mistakes = check(self)
        if mistakes:
            raise UserError("; ".join(mistakes))
        return Encoder(self)


def check(model: ModelConfig, length: int | None = None) -> list[str]:
    """Cross-field mistakes, one line each, for examples of `length` characters (any length where None)."""
    mistakes = []
    if model.width % model.trunk.heads:
        mistakes.append(f"model.trunk.heads: {model.trunk.heads} does not divide model.width, {model.width}")
    mistakes += model.embedder.check(model.width, length)
    mistakes += model.downsampler.check(length)
    mistakes += model.trunk.check(length)
    mistakes += model.upsampler.check(model.downsampler)
    return mistakes


class EncoderOutput(NamedTuple):
    """Vectors of characters [B, C, D] (of the targets only: [B, P, D]), of units [B, U, D], of the whole [B, D]."""

    characters: Tensor
    units: Tensor
    pooled: Tensor


class Encoder(nn.Module):
    """Any embedder, downsampler, trunk and upsampler in one frame."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dimensions = config.dimensions
        self.config = config
        self.width = config.width
        self.embedder = config.embedder.build(dimensions)
        self.downsampler = config.downsampler.build(dimensions)
        self.trunk = config.trunk.build(dimensions)
        self.upsampler = config.upsampler.build(dimensions)
        self.pooler = nn.Linear(config.width, config.width)
        self.apply(initialise)

    def forward(
        self,
        codepoints_BC: Tensor,
        mask_BC: Tensor,
        segments_BC: Tensor | None = None,
        targets_BP: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a batch of padded character sequences, whose first character is CLS.

        Args:
            codepoints_BC: int64 codepoints (specials from the Private Use Area, 0 for padding).
            mask_BC: bool, true for real characters; CLS counts as real even in a row of padding.
            segments_BC: int64 segment ids, 0 where not given.
            targets_BP: int64 character indices. Where given, only these characters are upsampled, which costs a
                fraction and gives the same vectors as upsampling all and gathering.

        Raises:
            UserError: for more characters than the position table has rows.
        """
        num_characters = codepoints_BC.shape[1]
        missing = self.downsampler.min_characters - num_characters
        if missing > 0:  # the shortest sequences are padded so that one unit comes out
            codepoints_BC, mask_BC = F.pad(codepoints_BC, (0, missing)), F.pad(mask_BC, (0, missing))
            segments_BC = None if segments_BC is None else F.pad(segments_BC, (0, missing))
        mask_BC = _with_cls(mask_BC)
        down, units_BUD = self.encode(codepoints_BC, mask_BC, segments_BC)
        y_BCD = self.upsampler(units_BUD, down.grouping, down.characters_BCD, mask_BC, targets_BP)
        return EncoderOutput(
            y_BCD if targets_BP is not None else y_BCD[:, :num_characters], units_BUD, self.pool(units_BUD)
        )

    def encode(
        self, codepoints_BC: Tensor, mask_BC: Tensor, segments_BC: Tensor | None = None
    ) -> tuple[Downsampled, Tensor]:
        """ENCODE(DOWN(embed(x))): what DOWN gave, and the units [B, U, D]. All that a classifier needs, with `pool`."""
        down = self.downsampler(self.embedder(codepoints_BC, segments_BC), mask_BC)
        return down, self.trunk(down.units_BUD, down.valid_BU)

    def pool(self, units_BUD: Tensor) -> Tensor:
        """One vector for the whole sequence, [B, D]: tanh of a dense layer on the first unit, CLS."""
        return torch.tanh(self.pooler(units_BUD[:, 0]))

    def embed_characters(self, codepoints_BP: Tensor, positions_BP: Tensor) -> Tensor:
        """Embeddings [B, P, D] of single characters at given positions, each without neighbours, in segment 0."""
        shape = codepoints_BP.shape
        x_NxD = self.embedder(codepoints_BP.reshape(-1, 1), None, positions_BP.reshape(-1, 1))
        return x_NxD.reshape(*shape, -1)

    def costs(self, length: int, num_targets: int | None = None) -> list[Cost]:
        """The parts in the order of the computation, for one example of `length` characters."""
        num_units = self.downsampler.num_units(length)
        return [
            *self.embedder.costs(length),
            *self.downsampler.costs(length),
            *self.trunk.costs(num_units),
            Cost("pooler", (self.width,), count_parameters(self.pooler), self.width**2),
            *self.upsampler.costs(length, num_targets),
        ]


def _with_cls(mask_BC: Tensor) -> Tensor:
    first_C = torch.arange(mask_BC.shape[1], device=mask_BC.device) == 0
    return mask_BC.bool() | first_C
