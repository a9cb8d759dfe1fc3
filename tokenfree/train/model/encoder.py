"""The encoder Y = UP(ENCODE(DOWN(embed(x)))), built from one variant of each part.

N single characters
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from tokenfree.core.errors import SettingsError
from tokenfree.core.settings import Positive, Slot, part, settings
from tokenfree.train.model.common.attention import LayerBias, shared, sums
from tokenfree.train.model.common.basic import (
    Cost,
    Dimensions,
    Downsampled,
    Initialisation,
    TableRows,
    any_of_units,
    count_parameters,
    initialise,
    is_exporting,
    look_up,
    takes,
    unit_segments,
)
from tokenfree.train.model.common.slots import NEIGHBOURS, TrunkConfig

_SLOTS = "tokenfree.train.model.common.slots"
EMBEDDER = Slot("tokenfree.train.model.embedders", "codepoint_hash", f"{_SLOTS}.EmbedderConfig")
DOWNSAMPLER = Slot("tokenfree.train.model.downsamplers", "strided_conv", f"{_SLOTS}.DownsamplerConfig")
UPSAMPLER = Slot("tokenfree.train.model.upsamplers", "repeat_concat", f"{_SLOTS}.UpsamplerConfig")


class Trunk(nn.Module):
    """A stack of equal layers with one attention pattern (which may depend on depth) and one position encoding."""

    positions: Any  # a `Positions`; its class depends on the config
    segments: Any

    def __init__(self, config: TrunkConfig, dimensions: Dimensions) -> None:
        super().__init__()
        self.positions = takes(config.positions.build(dimensions, config), "units, valid")
        self.segments = takes(config.segments.build(dimensions, config), "segments")
        layers: list[Any] = [
            config.layer.build(
                dimensions, partial(config.attention.build, layer=layer, num_layers=config.layers)
            )
            for layer in range(config.layers)
        ]
        for layer in layers:
            takes(takes(layer, "units, valid, bias, *, global_BU").core, "heads")
        self.layers = nn.ModuleList(layers)
        self.end: nn.Module = takes(config.layer.build_end(dimensions), "units")
        self.width = dimensions.width

    def forward(
        self,
        units_BUD: Tensor,
        valid_BU: Tensor,
        segments_BU: Tensor | None = None,
        global_BU: Tensor | None = None,
    ) -> Tensor:
        """Return the units after all layers, [B, U, D].

        Only the trunk's segments use `segments_BU`, int64. None: 0.
        """
        biases = self._biases(units_BUD, valid_BU, segments_BU)
        for layer, bias in zip(self.layers, biases, strict=True):
            units_BUD = layer(units_BUD, valid_BU, bias, global_BU=global_BU)
        return self.end(units_BUD)

    def copy_projections(self) -> list[str]:
        layers: list[Any] = list(self.layers)
        copied = [
            (number, name)
            for number, layer in enumerate(layers)
            for name in layer.core.copy_projections(layer)
        ]
        return [f"layers.{number}.core.{name}" for number, name in copied]

    def costs(self, num_units: int) -> list[Cost]:
        layers: list[Any] = list(self.layers)
        multiply_accumulates = sum(layer.multiply_accumulates(num_units) for layer in layers)
        codes = count_parameters(self.positions, self.segments)
        shape, parameters = (num_units, self.width), count_parameters(self) - codes
        stack = Cost("deep stack", shape, parameters, multiply_accumulates)
        if codes == 0:
            return [stack]
        pairs = [
            layer.core.num_pairs(num_units, layer.core.num_keys(num_units), layer.num_heads)
            for layer in layers
        ]
        code = self.positions.multiply_accumulates(num_units, pairs)
        return [Cost("positions + segments", shape, codes, code), stack]

    def _biases(
        self, units_BUD: Tensor, valid_BU: Tensor, segments_BU: Tensor | None
    ) -> Sequence[LayerBias | None]:
        if segments_BU is None:
            segments_BU = torch.zeros(1, units_BUD.shape[1], dtype=torch.int64, device=units_BUD.device)
        added = [self.positions(units_BUD, valid_BU), self.segments(segments_BU)]
        of_layers = (
            some * len(self.layers) if len(some) == 1 else some for some in added if some is not None
        )
        biases = [shared(some) for some in of_layers]
        if not biases:
            return [None] * len(self.layers)
        return biases[0] if len(biases) == 1 else shared(sums(*biases))


@settings
class ModelConfig:
    """Parts of the encoder; the defaults are CANINE base (Clark et al., arXiv 2103.06874, section 3).

    Attributes:
        width: width of units and of the output vectors.
        character_width: width of characters before DOWN, for downsamplers that can change it; null: `width`.
        embedder: map from symbols to vectors.
        downsampler: DOWN, from characters to units.
        trunk: ENCODE, the deep stack of layers over units.
        upsampler: UP, from units back to characters.
        neighbours: linear path beside the encoder, from hashed n-grams to the scores of a head.
        initialisation: initial weights. `official`: as in the code of CANINE and BERT; `scaled`: dense
            kernels scaled to their number of inputs, position tables as sinusoids.
    """

    width: Positive = 768
    character_width: Positive | None = None
    embedder: Annotated[Any, EMBEDDER] = part(EMBEDDER)
    downsampler: Annotated[Any, DOWNSAMPLER] = part(DOWNSAMPLER)
    trunk: TrunkConfig = dataclasses.field(default_factory=TrunkConfig)
    upsampler: Annotated[Any, UPSAMPLER] = part(UPSAMPLER)
    neighbours: Annotated[Any, NEIGHBOURS] = part(NEIGHBOURS)
    initialisation: Initialisation = "official"

    @property
    def dimensions(self) -> Dimensions:
        trunk = self.trunk
        inner_width = 4 * self.width if trunk.inner_width is None else trunk.inner_width
        return Dimensions(
            self.width,
            trunk.heads,
            inner_width,
            trunk.dropout,
            trunk.activation,
            self.character_width or self.width,
        )

    def build(self) -> "Encoder":
        """Return the encoder, initialised with torch's global generator.

        Raises UserError if `check` finds problems.
        """
        problems = check(self)
        if problems:
            raise SettingsError(problems=problems)
        return Encoder(self)


def check(model: ModelConfig, length: int | None = None) -> list[str]:
    """Return the problems between the parts, one line each, for examples of `length` characters (None: any length)."""
    downsampler = model.downsampler
    num_units = None if length is None else downsampler.num_units(length)
    return [
        *_problems_of_width(model),
        *model.embedder.check(model.dimensions.character_width, length),
        *downsampler.check(length),
        *model.trunk.check(num_units),
        *model.upsampler.check(downsampler),
    ]


def _problems_of_width(model: ModelConfig) -> Iterator[str]:
    width, character_width, heads = model.width, model.dimensions.character_width, model.trunk.heads
    downsampler = model.downsampler
    if width % heads:
        yield f"model.trunk.heads: {heads} does not divide model.width, {width}"
    if character_width == width:
        return
    if not downsampler.changes_width:
        yield (
            f"model.character_width: {character_width} is not model.width, {width}, and model.downsampler.name: "
            f"{downsampler.name} keeps the width; leave it out or choose another downsampler"
        )
    if character_width % heads and downsampler.layers:
        yield f"model.trunk.heads: {heads} does not divide model.character_width, {character_width}"
    if model.upsampler.residual_characters:
        yield (
            f"model.upsampler.residual_characters: characters of width {character_width} cannot be added to vectors of "
            f"model.width, {width}; set it to false or leave out model.character_width"
        )


class EncoderOutput(NamedTuple):
    """Vectors of characters [B, C, D] (or of targets [B, P, D]), of units [B, U, D] and of the sequence [B, D]."""

    characters: Tensor
    units: Tensor
    pooled: Tensor


class Encoder(nn.Module):
    # An `Embedder`, a `Downsampler` and an `Upsampler`. Their classes depend on the config.
    embedder: Any
    downsampler: Any
    upsampler: Any

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dimensions = config.dimensions
        self.config = config
        self.width = config.width
        embedder = config.embedder.build(dataclasses.replace(dimensions, width=dimensions.character_width))
        self.embedder = takes(embedder, "symbols, segments, positions")
        ends = "" if config.downsampler.bytes_per_word is None else ", unit_ends"
        self.downsampler = takes(config.downsampler.build(dimensions), f"characters, mask{ends}")
        self.trunk = Trunk(config.trunk, dimensions)
        upsampler = config.upsampler.build(dimensions)
        self.upsampler = takes(upsampler, "units, grouping, characters, mask, targets")
        self.pooler = nn.Linear(config.width, config.width)
        self.apply(partial(initialise, how=config.initialisation))

    def forward(
        self,
        codepoints_BC: Tensor,
        mask_BC: Tensor,
        segments_BC: Tensor | None = None,
        targets_BP: Tensor | None = None,
        unit_ends_BU: Tensor | None = None,
        global_BC: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a batch of padded sequences that begin with CLS.

        Args:
            codepoints_BC: int64 codepoints (specials from the Private Use Area, 0 for padding), or the
                symbols of `EmbedderConfig.symbols`. Vectors are float [B, C, S].
            mask_BC: bool, true for real characters. CLS counts as real even in a row of padding.
            segments_BC: int64 segment ids. None: all 0.
            targets_BP: int64 indices of the characters to upsample, at a fraction of the cost of all.
                Upsamplers with several vectors per unit also take [B, P, 2]: a unit and the index of its
                vector. None: all characters.
            unit_ends_BU: int64 end (exclusive) of each unit, for downsamplers with words of the text. Units
                start at character 0 and leave no gaps. Unused units repeat the end of the last one.
            global_BC: bool, characters whose units become global in addition to CLS, for attention with
                global units.
        """
        num_characters = codepoints_BC.shape[1]
        codepoints_BC, mask_BC, segments_BC, global_BC = self.padded(
            codepoints_BC, mask_BC, segments_BC, global_BC
        )
        # CLS is real.
        mask_BC = mask_BC.bool() | (torch.arange(mask_BC.shape[1], device=mask_BC.device) == 0)
        down, units_BUD = self.encode(codepoints_BC, mask_BC, segments_BC, unit_ends_BU, global_BC)
        y_BCD = self.upsampler(units_BUD, down.grouping, down.characters_BCD, mask_BC, targets_BP)
        # The graph would lose a slice of the whole example.
        if targets_BP is None and is_exporting():
            y_BCD = y_BCD.index_select(1, torch.arange(num_characters, device=y_BCD.device))
        elif targets_BP is None:
            y_BCD = y_BCD[:, :num_characters]
        return EncoderOutput(y_BCD, units_BUD, self.pool(units_BUD))

    def encode(
        self,
        codepoints_BC: Tensor,
        mask_BC: Tensor,
        segments_BC: Tensor | None = None,
        unit_ends_BU: Tensor | None = None,
        global_BC: Tensor | None = None,
    ) -> tuple[Downsampled, Tensor]:
        """Return the output of DOWN, and the units.

        Pass inputs too short for a unit through `padded` first.
        """
        embedded = self.embedder(codepoints_BC, segments_BC, None)
        if isinstance(embedded, TableRows) and not self.downsampler.takes_rows:
            embedded = look_up(embedded)
        down = self.downsampler(embedded, mask_BC, *(() if unit_ends_BU is None else (unit_ends_BU,)))
        segments_BU = (
            None if segments_BC is None else unit_segments(segments_BC, down.grouping, down.valid_BU.shape[1])
        )
        global_BU = (
            None if global_BC is None else any_of_units(global_BC, down.grouping, down.valid_BU.shape[1])
        )
        return down, self.trunk(down.units_BUD, down.valid_BU, segments_BU, global_BU)

    def padded(self, codepoints_BC: Tensor, *others_BC: Tensor | None) -> tuple[Any, ...]:
        """Pad symbols, and tensors that accompany them such as the mask, with zeros to at least one unit."""
        missing: Any = self.downsampler.min_characters - codepoints_BC.shape[1]
        # The exported graph must hold for sequences of any length.
        exporting = is_exporting()
        if exporting:
            missing = torch.sym_max(missing, 0)
        if not exporting and missing <= 0:
            return codepoints_BC, *others_BC
        longer = nn.functional.pad(codepoints_BC, (0, 0) * (codepoints_BC.dim() - 2) + (0, missing))
        return longer, *(
            None if other_BC is None else nn.functional.pad(other_BC, (0, missing)) for other_BC in others_BC
        )

    def pool(self, units_BUD: Tensor) -> Tensor:
        """Return one vector per sequence, [B, D]: tanh of a dense layer over the first unit, CLS."""
        return torch.tanh(self.pooler(units_BUD[:, 0]))

    def embed_characters(
        self, codepoints_BP: Tensor, positions_BP: Tensor, segments_BP: Tensor | None = None
    ) -> Tensor:
        """Embed single characters without their neighbours, at the given positions and segments: [B, P, D]."""
        segments_N1 = None if segments_BP is None else segments_BP.reshape(-1, 1)
        x_N1D = look_up(self.embedder(codepoints_BP.reshape(-1, 1), segments_N1, positions_BP.reshape(-1, 1)))
        return self.downsampler.widened(x_N1D).reshape(*codepoints_BP.shape, -1)

    def costs(self, length: int, num_targets: int | None = None) -> list[Cost]:
        num_units = self.downsampler.num_units(length)
        return [
            *self.embedder.costs(length),
            *self.downsampler.costs(length),
            *self.trunk.costs(num_units),
            Cost("pooler", (self.width,), count_parameters(self.pooler), self.width**2),
            *self.upsampler.costs(length, num_targets, num_units),
        ]


def mean_of_text(vectors_BPD: Tensor, real_BP: Tensor) -> Tensor:
    """Return the mean [B, D] of the real vectors between CLS (the first) and SEP (the last), or CLS without any."""
    is_first_P = torch.arange(real_BP.shape[1], device=real_BP.device) == 0
    inner_BP = real_BP & (real_BP.flip(1).cumsum(1).flip(1) > 1) & ~is_first_P
    # Onnxruntime lacks `where` for bool.
    inner_BP = inner_BP | (is_first_P & ~inner_BP.any(dim=1, keepdim=True))
    return (vectors_BPD * inner_BP[..., None]).sum(dim=1) / inner_BP.sum(dim=1, keepdim=True)
