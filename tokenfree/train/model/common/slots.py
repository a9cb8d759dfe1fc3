"""Abstract base classes of the parts of the model: of each slot one for `Config` and one for the module that it builds.

A part inherits both. What most parts have in common stands here and need not be repeated.

B batch, C characters (or bytes, or subwords), P targets, U units after DOWN, D width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import nn

from tokenfree.core.settings import Positive, Slot, part, settings
from tokenfree.train.model.common.attention import Core
from tokenfree.train.model.common.basic import Activation, Cost, Dimensions

_HERE = "tokenfree.train.model.common.slots"
EMBEDDER = Slot("tokenfree.train.model.embedders", "codepoint_hash", f"{_HERE}.EmbedderConfig")
DOWNSAMPLER = Slot("tokenfree.train.model.downsamplers", "strided_conv", f"{_HERE}.DownsamplerConfig")
UPSAMPLER = Slot("tokenfree.train.model.upsamplers", "repeat_concat", f"{_HERE}.UpsamplerConfig")
LAYER = Slot("tokenfree.train.model.layers", "bert", f"{_HERE}.LayerConfig")
ATTENTION = Slot("tokenfree.train.model.attention", "full", f"{_HERE}.AttentionConfig")
POSITIONS = Slot("tokenfree.train.model.positions", "none", f"{_HERE}.PositionsConfig")
SEGMENTS = Slot("tokenfree.train.model.segments", "none", f"{_HERE}.SegmentsConfig")

SymbolKind = Literal["characters", "bytes", "subwords", "vectors"]
Sharing = Literal["none", "head_wise", "layer_wise"]
"""none: every layer and head has its own; head_wise: the heads of a layer share; layer_wise: the layers share."""


class Embedder(nn.Module, ABC):
    """Symbols to vectors.

    `forward(codepoints_BC, segments_BC, positions_BC=None)` returns vectors [B, C, D], or `TableRows`, of int64 symbols
    or of float vectors [B, C, S]. Segments are 0 and positions 0 to C - 1 where they are None.
    """

    learns_characters = False  # whether it is to be given the frequent characters of the data before training

    def learn(self, codepoints: np.ndarray, /) -> None:
        """Take in the characters of the data, int64, the most frequent first."""
        raise AssertionError(f"{type(self).__name__} learns no characters")

    @abstractmethod
    def costs(self, length: int, /) -> list[Cost]:
        """Return its steps in the order of the computation, for one example of `length` symbols."""


class EmbedderConfig(ABC):
    """The settings of an embedder.

    `symbols` are what the integers stand for that it reads; or vectors, which are floats. Objectives and tasks that
    have other symbols refuse the model.
    """

    symbols: SymbolKind = "characters"

    @abstractmethod
    def build(self, dimensions: Dimensions, /) -> Embedder:
        """Return the module with fresh weights; `dimensions.width` is that of characters."""

    def check(self, width: int, length: int | None, /) -> list[str]:
        """Return what is wrong with it for characters of `width` and examples of `length` symbols (any where None)."""
        return []


class Downsampler(nn.Module, ABC):
    """Characters to fewer units, and the grouping: which character went to which unit.

    `forward(x_BCD, mask_BC, *unit_ends_BU)` returns `Downsampled`; `mask_BC`, bool, is true for real characters.
    `unit_ends_BU`, int64, comes only where `bytes_per_word` is set, and there not always: the characters up to which
    each unit reaches.
    """

    min_characters = 1  # shorter inputs are padded to this length, so that there is one unit
    takes_rows = False  # whether it is given vectors that are rows of a small table as `TableRows`, not looked up yet

    def widened(self, x_BCD: Any, /) -> Any:
        """Return vectors of single characters in the width of the units, where it has a layer for that."""
        return x_BCD

    @abstractmethod
    def num_units(self, num_characters: int, /) -> int:
        """Return the units of `num_characters` characters; where the text decides, the most that fit."""

    @abstractmethod
    def costs(self, length: int, /) -> list[Cost]:
        """Return its steps in the order of the computation, for one example of `length` characters."""


class DownsamplerConfig(ABC):
    """The settings of a downsampler."""

    changes_width = False  # whether characters may be narrower or wider than units
    layers: int = 0  # Transformer layers over characters, whose width the heads then have to divide
    rate: int = 1  # the length of an example has to be a multiple of this
    bytes_per_word = None  # set where units are words of the text: bytes of an input per word that it has room for

    @abstractmethod
    def build(self, dimensions: Dimensions, /) -> Downsampler:
        """Return the module with fresh weights: from characters of `dimensions.character_width` to units of `width`."""

    def check(self, length: int | None, /) -> list[str]:
        """Return what is wrong with it for examples of `length` characters (any where None), a line each."""
        return []

    def num_units(self, length: int, /) -> int | None:
        """Return the units of an example of `length` characters; None where the text decides."""
        return None


class Upsampler(nn.Module, ABC):
    """Units back to characters.

    `forward(units_BUD, grouping, characters_BCD, mask_BC, targets_BP=None)` returns vectors of all characters [B, C, D]
    or, where given, of the targets [B, P, D], which must be the same. `characters_BCD` are those that DOWN handed on;
    `mask_BC`, bool, is true for real ones; `targets_BP` are int64 indices of characters, or where `max_pieces` is set
    [B, P, 2]: a unit and the number of its vector.
    """

    @abstractmethod
    def costs(self, length: int, num_targets: int | None, num_units: int, /) -> list[Cost]:
        """Return its steps in the order of the computation, for `length` characters in `num_units` units."""


class UpsamplerConfig(ABC):
    """The settings of an upsampler."""

    residual_characters: bool = False  # whether characters are added to vectors of the model's width
    max_pieces = None  # set where it makes several vectors of a unit: the most of one unit

    @abstractmethod
    def build(self, dimensions: Dimensions, /) -> Upsampler:
        """Return the module with fresh weights."""

    def check(self, downsampler: DownsamplerConfig, /) -> list[str]:
        """Return what is wrong with it behind `downsampler`, a line each."""
        return []


class AttentionConfig(ABC):
    """The settings of an attention pattern, whose module is a `Core`."""

    separate_global_projections: bool = False  # whether some units have queries of their own, unknown to position codes
    num_mixtures = None  # set where keys are mixtures of units, without position and segment: their number
    adds_to_values = False  # whether position codes may add vectors to values (`Heads.offset_values`)

    @abstractmethod
    def build(self, dimensions: Dimensions, /, layer: int, num_layers: int) -> Core:
        """Return the pattern of layer `layer` (0 is the lowest) of `num_layers`, with fresh weights."""

    def check(self, trunk: TrunkSettings, num_units: int | None, /) -> Iterable[str]:
        """Return what is wrong with it in `trunk` for examples of `num_units` units (any where None), a line each."""
        return ()


class Layer(nn.Module, ABC):
    """One layer of the trunk around an attention pattern.

    `forward(x_BUD, valid_BU, bias=None, *, global_BU=None)` returns the units after it, [B, U, D]. `valid_BU`, bool:
    real units. `bias`: the position code and the segments. `global_BU`, bool: units that see all and are seen by all,
    for patterns that have such.
    """

    core: Core
    num_heads: int

    @abstractmethod
    def multiply_accumulates(self, num_units: int, /) -> int:
        """Return the multiply-accumulates of one forward pass over `num_units` units."""


class LayerConfig(ABC):
    """The settings of a layer."""

    head_width: int | None = None  # set where heads have this width and not that of units divided by their number

    @abstractmethod
    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core], /) -> Layer:
        """Return a layer with fresh weights around the pattern that `build_core` makes."""

    def build_end(self, dimensions: Dimensions, /) -> nn.Module:
        """Return what follows the last layer: [B, U, D] to [B, U, D]."""
        return nn.Identity()


class Positions(nn.Module, ABC):
    """A position code in the trunk.

    `forward(units_BUD, valid_BU)` returns a `LayerBias` for each layer, the same object for all layers that share; None
    where it never adds anything. It is called once in a forward pass.
    """

    @abstractmethod
    def multiply_accumulates(self, num_units: int, pairs: list[int], /) -> int:
        """Return the multiply-accumulates of one forward pass.

        `pairs` are the visible ones of each layer, summed over heads.
        """


class PositionsConfig(ABC):
    """The settings of a position code."""

    sharing: Sharing = "none"  # which layers and heads have parameters of their own; segments share likewise
    takes_mixtures = False  # whether it knows keys that are mixtures of units (`AttentionConfig.num_mixtures`)

    @abstractmethod
    def build(self, dimensions: Dimensions, trunk: TrunkSettings, /) -> Positions:
        """Return the module with fresh weights."""

    def check(self, trunk: TrunkSettings, num_units: int | None, /) -> Iterable[str]:
        """Return what is wrong with it in `trunk` for examples of `num_units` units (any where None), a line each."""
        return ()


class SegmentsConfig(ABC):
    """The settings of segments in the trunk.

    The module's `forward(segments_BU)` returns what the segments of units, int64 [B or 1, U], add in each layer, as a
    position code does.
    """

    @abstractmethod
    def build(self, dimensions: Dimensions, trunk: TrunkSettings, /) -> nn.Module:
        """Return the module with fresh weights."""

    def check(self, trunk: TrunkSettings, /) -> Iterable[str]:
        """Return what is wrong with them in `trunk`, a line each."""
        return ()


@settings
class TrunkSettings:
    """The settings of the trunk, as its parts see them.

    `heads`, `inner_width`, `dropout` and `activation` hold for the layers over characters as well.

    Attributes:
        layers: layers of the stack.
        heads: attention heads of each layer; must divide the width.
        inner_width: width inside the FFN; null: four times the width.
        dropout: share of values set to 0 in training, 0 to below 1.
        activation: `gelu_tanh`, GELU's tanh approximation, as in the official code of CANINE, or `gelu`, the exact one.
        layer: the kind of layer.
        attention: which unit sees which.
        positions: the position code inside the stack.
        segments: segments inside the stack.
    """

    layers: Annotated[int, Field(ge=1, le=1000)] = 12
    heads: Positive = 12
    inner_width: Positive | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    activation: Activation = "gelu_tanh"
    layer: Annotated[Any, LAYER] = part(LAYER)
    attention: Annotated[Any, ATTENTION] = part(ATTENTION)
    positions: Annotated[Any, POSITIONS] = part(POSITIONS)
    segments: Annotated[Any, SEGMENTS] = part(SEGMENTS)

    def check(self, num_units: int | None) -> Iterable[str]:
        """Return what is wrong with its parts for examples of `num_units` units (any where None), a line each."""
        yield from self.attention.check(self, num_units)
        yield from self.positions.check(self, num_units)
        yield from self.segments.check(self)
