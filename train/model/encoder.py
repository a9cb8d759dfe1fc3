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
from train.downsamplers.grouping import Downsampled, any_of_units, unit_segments
from train.embedders.rows import Rows, look_up
from train.layers import Cost, Dimensions, count_parameters, initialise
from train.trunk import TrunkConfig


@settings
class ModelConfig:
    """What the encoder is made of; the defaults are CANINE, base size."""

    width: Annotated[int, Field(ge=1)] = 768
    character_width: Annotated[int, Field(ge=1)] | None = None  # of embeddings, before DOWN; None: the width
    embedder: Annotated[Any, Slot("train.embedders", "codepoint_hash")] = part("train.embedders", "codepoint_hash")
    downsampler: Annotated[Any, Slot("train.downsamplers", "strided_conv")] = part("train.downsamplers", "strided_conv")
    trunk: TrunkConfig = dataclasses.field(default_factory=TrunkConfig)
    upsampler: Annotated[Any, Slot("train.upsamplers", "repeat_concat")] = part("train.upsamplers", "repeat_concat")

    @property
    def dimensions(self) -> Dimensions:
        """Width, heads, inner width, dropout and activation of all layers."""
        trunk = self.trunk
        inner_width = 4 * self.width if trunk.inner_width is None else trunk.inner_width
        return Dimensions(
            self.width, trunk.heads, inner_width, trunk.dropout, trunk.activation, self.character_width or self.width
        )

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
    character_width = model.dimensions.character_width
    if character_width != model.width and not getattr(model.downsampler, "changes_width", False):
        mistakes.append(
            f"model.character_width: {character_width} is not model.width, {model.width}, and model.downsampler.name: "
            f"{model.downsampler.name} keeps the width; leave it out or choose another downsampler"
        )
    if (
        character_width != model.width
        and character_width % model.trunk.heads
        and getattr(model.downsampler, "layers", 0)
    ):
        mistakes.append(
            f"model.trunk.heads: {model.trunk.heads} does not divide model.character_width, {character_width}"
        )
    if character_width != model.width and getattr(model.upsampler, "residual_characters", False):
        mistakes.append(
            f"model.upsampler.residual_characters: characters of width {character_width} cannot be added to vectors of "
            f"model.width, {model.width}; set it to false or leave out model.character_width"
        )
    mistakes += model.embedder.check(character_width, length)
    mistakes += model.downsampler.check(length)
    mistakes += model.trunk.check(_num_units(model, length))
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
        self.embedder = config.embedder.build(dataclasses.replace(dimensions, width=dimensions.character_width))
        self.downsampler = config.downsampler.build(dimensions)
        self.takes_rows = getattr(self.downsampler, "takes_rows", False)
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
        unit_ends_BU: Tensor | None = None,
        global_BC: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a batch of padded character sequences, whose first character is CLS.

        Args:
            codepoints_BC: int64 codepoints (specials from the Private Use Area, 0 for padding).
            mask_BC: bool, true for real characters; CLS counts as real even in a row of padding.
            segments_BC: int64 segment ids, 0 where not given.
            targets_BP: int64 character indices. Where given, only these characters are upsampled, which costs a
                fraction and gives the same vectors as upsampling all and gathering. An upsampler that makes several
                vectors of a unit takes int64 [B, P, 2] as well: pairs of a unit and the number of its vector.
            unit_ends_BU: int64, where given by the text: the characters (from the first on, without gaps) up to which
                each unit reaches. Units past the last one end where that does. Downsamplers with units of their own
                refuse it.
            global_BC: bool, characters whose units see all and are seen by all, besides CLS, in patterns with global
                units (as many of them as these have room for).

        Raises:
            UserError: for more characters than the position table has rows.
        """
        num_characters = codepoints_BC.shape[1]
        missing = self.downsampler.min_characters - num_characters
        if missing > 0:  # the shortest sequences are padded so that one unit comes out
            codepoints_BC, mask_BC = F.pad(codepoints_BC, (0, missing)), F.pad(mask_BC, (0, missing))
            segments_BC = None if segments_BC is None else F.pad(segments_BC, (0, missing))
            global_BC = None if global_BC is None else F.pad(global_BC, (0, missing))
        mask_BC = _with_cls(mask_BC)
        down, units_BUD = self.encode(codepoints_BC, mask_BC, segments_BC, unit_ends_BU, global_BC)
        y_BCD = self.upsampler(units_BUD, down.grouping, down.characters_BCD, mask_BC, targets_BP)
        return EncoderOutput(
            y_BCD if targets_BP is not None else y_BCD[:, :num_characters], units_BUD, self.pool(units_BUD)
        )

    def encode(
        self,
        codepoints_BC: Tensor,
        mask_BC: Tensor,
        segments_BC: Tensor | None = None,
        unit_ends_BU: Tensor | None = None,
        global_BC: Tensor | None = None,
    ) -> tuple[Downsampled, Tensor]:
        """ENCODE(DOWN(embed(x))): what DOWN gave, and the units [B, U, D]. All that a classifier needs, with `pool`."""
        embedded = self.embedder(codepoints_BC, segments_BC)
        if isinstance(embedded, Rows) and not self.takes_rows:
            embedded = look_up(embedded)
        given = () if unit_ends_BU is None else (unit_ends_BU,)  # only some downsamplers take units of the text's
        down = self.downsampler(embedded, mask_BC, *given)
        segments_BU = None if segments_BC is None else unit_segments(segments_BC, down.grouping, down.valid_BU.shape[1])
        global_BU = None if global_BC is None else any_of_units(global_BC, down.grouping, down.valid_BU.shape[1])
        return down, self.trunk(down.units_BUD, down.valid_BU, segments_BU, global_BU)

    def pool(self, units_BUD: Tensor) -> Tensor:
        """One vector for the whole sequence, [B, D]: tanh of a dense layer on the first unit, CLS."""
        return torch.tanh(self.pooler(units_BUD[:, 0]))

    def embed_characters(self, codepoints_BP: Tensor, positions_BP: Tensor) -> Tensor:
        """Embeddings [B, P, D] of single characters at given positions, each without neighbours, in segment 0."""
        shape = codepoints_BP.shape
        x_NxD = look_up(self.embedder(codepoints_BP.reshape(-1, 1), None, positions_BP.reshape(-1, 1)))
        if hasattr(self.downsampler, "widen"):  # characters may be narrower than all else
            x_NxD = self.downsampler.widen(x_NxD)
        return x_NxD.reshape(*shape, -1)

    def costs(self, length: int, num_targets: int | None = None) -> list[Cost]:
        """The parts in the order of the computation, for one example of `length` characters."""
        num_units = self.downsampler.num_units(length)
        return [
            *self.embedder.costs(length),
            *self.downsampler.costs(length),
            *self.trunk.costs(num_units),
            Cost("pooler", (self.width,), count_parameters(self.pooler), self.width**2),
            *self.upsampler.costs(length, num_targets, num_units),
        ]


def _num_units(model: ModelConfig, length: int | None) -> int | None:
    """The units of an example of `length` characters, where settings alone tell."""
    count = getattr(model.downsampler, "num_units", None)
    return None if count is None or length is None else count(length)


def _with_cls(mask_BC: Tensor) -> Tensor:
    first_C = torch.arange(mask_BC.shape[1], device=mask_BC.device) == 0
    return mask_BC.bool() | first_C
