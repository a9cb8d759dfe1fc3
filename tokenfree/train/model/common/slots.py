"""The slots of the model: what a part of the frame or of the trunk must offer.

Each slot has a protocol of the part's `Config` and one of the module that it builds. Base classes hold what most parts
have in common: `...Defaults` for the config, `...Module` for the module; attention patterns build on `Core`. `PartSlot`
annotates a field of a slot.

B batch, C characters (or bytes, or subwords), P targets, U units after DOWN, Q queries, K keys, H heads,
E width of a head, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

import numpy as np
from torch import Tensor, nn

from tokenfree.core.settings import Contract, Slot
from tokenfree.train.model.common.attention import Core, Heads, LayerBias
from tokenfree.train.model.common.basic import Cost, Dimensions, Downsampled, Grouping, TableRows

SymbolKind = Literal["characters", "bytes", "subwords", "vectors"]


class PartConfig(Protocol):
    """The settings of any part."""

    @property
    def name(self) -> str:
        """The name of the part, which is that of its file."""
        ...


class EmbedderConfig(PartConfig, Protocol):
    """The settings of an embedder."""

    @property
    def symbols(self) -> SymbolKind:
        """What the integers stand for that it reads; or vectors, which are floats. Objectives and tasks that have other
        symbols refuse the model.
        """
        ...

    def build(self, dimensions: Dimensions, /) -> Embedder:
        """The module with fresh weights; `dimensions.width` is that of characters."""
        ...

    def check(self, width: int, length: int | None, /) -> list[str]:
        """What is wrong with it for characters of `width` and examples of `length` symbols (any where None)."""
        ...


class EmbedderDefaults:
    """A config that reads characters, for any width and length."""

    symbols = "characters"

    def check(self, width: int, length: int | None) -> list[str]:
        """See `EmbedderConfig.check`."""
        return []


class Embedder(Protocol):
    """Symbols to vectors."""

    @property
    def learns_characters(self) -> bool:
        """Whether it is to be given the frequent characters of the data before training."""
        ...

    def __call__(
        self, codepoints_BC: Tensor, segments_BC: Tensor | None, positions_BC: Tensor | None = None, /
    ) -> Tensor | TableRows:
        """Vectors [B, C, D] of int64 symbols, or of float vectors [B, C, S].

        Segments are 0 and positions 0 to C - 1 where not given.
        """
        ...

    def learn(self, codepoints: np.ndarray, /) -> None:
        """Take in the characters of the data, int64, the most frequent first."""
        ...

    def costs(self, length: int, /) -> list[Cost]:
        """Its steps in the order of the computation, for one example of `length` symbols."""
        ...


class EmbedderModule(nn.Module):
    """An embedder that knows all that it needs from the start."""

    learns_characters = False

    def learn(self, codepoints: np.ndarray) -> None:
        """See `Embedder.learn`."""
        raise AssertionError(f"{type(self).__name__} learns no characters")


class DownsamplerConfig(PartConfig, Protocol):
    """The settings of a downsampler."""

    @property
    def changes_width(self) -> bool:
        """Whether characters may be narrower or wider than units."""
        ...

    @property
    def layers(self) -> int:
        """Transformer layers over characters, whose width the heads then have to divide."""
        ...

    @property
    def rate(self) -> int:
        """The length of an example has to be a multiple of this."""
        ...

    @property
    def bytes_per_word(self) -> int | None:
        """Set where units are the words of the text: an input has room for one for each so many bytes."""
        ...

    def build(self, dimensions: Dimensions, /) -> Downsampler:
        """The module with fresh weights, from characters of `dimensions.character_width` to units of `width`."""
        ...

    def check(self, length: int | None, /) -> list[str]:
        """What is wrong with it for examples of `length` characters (any where None), a line each."""
        ...

    def num_units(self, length: int, /) -> int | None:
        """Units of an example of `length` characters; None where the text decides."""
        ...


class DownsamplerDefaults:
    """A config of units that are as wide as characters, for any length."""

    changes_width = False
    layers = 0
    rate = 1
    bytes_per_word = None

    def check(self, length: int | None) -> list[str]:
        """See `DownsamplerConfig.check`."""
        return []

    def num_units(self, length: int) -> int | None:
        """See `DownsamplerConfig.num_units`."""
        return None


class Downsampler(Protocol):
    """Characters to fewer units, and the grouping: which character went to which unit."""

    @property
    def min_characters(self) -> int:
        """Shorter inputs are padded to so many, that one unit comes out."""
        ...

    @property
    def takes_rows(self) -> bool:
        """Whether it is given vectors that are rows of a small table as `TableRows`, not looked up yet."""
        ...

    def __call__(self, x_BCD: Tensor | TableRows, mask_BC: Tensor, /, *unit_ends_BU: Tensor) -> Downsampled:
        """Units [B, U, D]; `mask_BC`, bool, is true for real characters.

        `unit_ends_BU`, int64, comes only where `bytes_per_word` is set, and there not always: the characters up to
        which each unit reaches.
        """
        ...

    def widened(self, x_BCD: Tensor, /) -> Tensor:
        """Vectors of single characters, in the width of the units where it has a layer for that."""
        ...

    def num_units(self, num_characters: int, /) -> int:
        """Units of `num_characters` characters; where the text decides, so many have room."""
        ...

    def costs(self, length: int, /) -> list[Cost]:
        """Its steps in the order of the computation, for one example of `length` characters."""
        ...


class DownsamplerModule(nn.Module):
    """A downsampler that takes vectors, any number of them, and has no layer that widens them."""

    min_characters = 1
    takes_rows = False

    def widened(self, x_BCD: Tensor) -> Tensor:
        """See `Downsampler.widened`."""
        return x_BCD


class UpsamplerConfig(PartConfig, Protocol):
    """The settings of an upsampler."""

    @property
    def residual_characters(self) -> bool:
        """Whether characters are added to vectors of the model's width, which must then be their own."""
        ...

    @property
    def max_pieces(self) -> int | None:
        """Set where it makes several vectors of a unit: so many at most."""
        ...

    def build(self, dimensions: Dimensions, /) -> Upsampler:
        """The module with fresh weights."""
        ...

    def check(self, downsampler: DownsamplerConfig, /) -> list[str]:
        """What is wrong with it behind `downsampler`, a line each."""
        ...


class UpsamplerDefaults:
    """A config of an upsampler that makes one vector of a unit for each of its characters, behind any downsampler."""

    residual_characters = False
    max_pieces = None

    def check(self, downsampler: DownsamplerConfig) -> list[str]:
        """See `UpsamplerConfig.check`."""
        return []


class Upsampler(Protocol):
    """Units back to characters."""

    def __call__(
        self,
        units_BUD: Tensor,
        grouping: Grouping,
        characters_BCD: Tensor,
        mask_BC: Tensor,
        targets_BP: Tensor | None = None,
        /,
    ) -> Tensor:
        """Vectors of all characters [B, C, D] or, where given, of the targets [B, P, D], which must be the same.

        `characters_BCD` are those that DOWN handed on; `mask_BC`, bool, is true for real ones; `targets_BP` are int64
        indices of characters, or where `max_pieces` is set [B, P, 2]: a unit and the number of its vector.
        """
        ...

    def costs(self, length: int, num_targets: int | None, num_units: int, /) -> list[Cost]:
        """Its steps in the order of the computation, for an example of `length` characters in `num_units` units."""
        ...


Sharing = Literal["none", "head_wise", "layer_wise"]
"""none: every layer and head has its own; head_wise: the heads of a layer share; layer_wise: the layers share."""


class Attention(Protocol):
    """Attention between the projections of one layer: which query sees which key."""

    @property
    def num_alone(self) -> int:
        """Of the first heads, so many see their own key alone: the layer may leave their queries and keys out."""
        ...

    def __call__(self, heads: Heads, /) -> Tensor:
        """The context of every query, [B, H, Q, E]."""
        ...

    def source(self, x_BUD: Tensor, valid_BU: Tensor, /) -> tuple[Tensor, Tensor]:
        """What keys and values are projected from, [B, K, D], and bool [B, K], which of it is real."""
        ...

    def num_keys(self, num_units: int, /) -> int:
        """K, the length of `source`, for `num_units` units."""
        ...

    def num_pairs(self, num_queries: int, num_keys: int, num_heads: int, /) -> int:
        """Pairs of a query and a key that are visible, summed over the heads, for one full example."""
        ...

    def projection_multiply_accumulates(self, num_units: int, width: int, /) -> int:
        """Multiply-accumulates of projections that the layer knows nothing of, for `num_units` units of `width`."""
        ...

    def copy_projections(self, layer: nn.Module, /) -> list[str]:
        """Let projections of its own, if any, begin as those of `layer` around it, and name the weights set."""
        ...


class AttentionConfig(PartConfig, Protocol):
    """The settings of an attention pattern."""

    @property
    def separate_global_projections(self) -> bool:
        """Whether some units have queries of their own, that no position code may scale or read."""
        ...

    @property
    def num_mixtures(self) -> int | None:
        """Set where keys are so many mixtures of units, which have no position and no segment."""
        ...

    @property
    def adds_to_values(self) -> bool:
        """Whether position codes may add vectors to values (`Heads.offset_values`)."""
        ...

    def build(self, dimensions: Dimensions, /, *, layer: int, num_layers: int) -> Attention:
        """The pattern of layer `layer` (0 is the lowest) of `num_layers`, with fresh weights."""
        ...

    def check(self, trunk: TrunkSettings, num_units: int | None, /) -> Iterable[str]:
        """What is wrong with it in `trunk` for examples of `num_units` units (any number where None), a line each."""
        ...


class AttentionDefaults:
    """A config of a pattern over the units themselves, with the projections of the layer."""

    separate_global_projections = False
    num_mixtures = None
    adds_to_values = False

    def check(self, trunk: TrunkSettings, num_units: int | None) -> Iterable[str]:
        """See `AttentionConfig.check`."""
        return ()


class Layer(Protocol):
    """One layer of the trunk around an attention pattern."""

    @property
    def core(self) -> Attention:
        """The pattern."""
        ...

    @property
    def num_heads(self) -> int:
        """H."""
        ...

    def __call__(
        self, x_BUD: Tensor, valid_BU: Tensor, bias: LayerBias | None = None, /, *, global_BU: Tensor | None = None
    ) -> Tensor:
        """The units after it, [B, U, D].

        `valid_BU`, bool: real units. `bias`: the position code and the segments. `global_BU`, bool: units that see all
        and are seen by all, for patterns that have such.
        """
        ...

    def multiply_accumulates(self, num_units: int, /) -> int:
        """Multiply-accumulates of one forward pass over `num_units` units."""
        ...


class LayerConfig(PartConfig, Protocol):
    """The settings of a layer."""

    @property
    def head_width(self) -> int | None:
        """Set where heads have this width and not that of units divided by their number."""
        ...

    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Attention], /) -> Layer:
        """A layer with fresh weights around the pattern that `build_core` makes."""
        ...

    def build_end(self, dimensions: Dimensions, /) -> nn.Module:
        """What follows the last layer: [B, U, D] to [B, U, D]."""
        ...


class LayerDefaults:
    """A config of a layer whose heads divide the width, and after the last of which nothing follows."""

    head_width = None

    def build_end(self, dimensions: Dimensions) -> nn.Module:
        """See `LayerConfig.build_end`."""
        return nn.Identity()


class Positions(Protocol):
    """A position code in the trunk."""

    def __call__(self, units_BUD: Tensor, valid_BU: Tensor, /) -> Sequence[LayerBias] | None:
        """What it adds in each layer, the same object for all layers that share; None where it never adds anything.

        Called once in a forward pass. Patterns ask for the pairs that they show, those that show all for all at once.
        """
        ...

    def multiply_accumulates(self, num_units: int, pairs: list[int], /) -> int:
        """Multiply-accumulates of one forward pass; `pairs` are the visible ones of each layer, summed over heads."""
        ...


class PositionsConfig(PartConfig, Protocol):
    """The settings of a position code."""

    @property
    def sharing(self) -> Sharing:
        """Which layers and heads have parameters of their own; segments share alike where they do not say."""
        ...

    @property
    def takes_mixtures(self) -> bool:
        """Whether it knows keys that are mixtures of units (`AttentionConfig.num_mixtures`)."""
        ...

    def build(self, dimensions: Dimensions, trunk: TrunkSettings, /) -> Positions:
        """The module with fresh weights."""
        ...

    def check(self, trunk: TrunkSettings, num_units: int | None, /) -> Iterable[str]:
        """What is wrong with it in `trunk` for examples of `num_units` units (any number where None), a line each."""
        ...


class PositionsDefaults:
    """A config of a code with nothing to share, for any trunk whose keys are units."""

    sharing = "none"
    takes_mixtures = False

    def check(self, trunk: TrunkSettings, num_units: int | None) -> Iterable[str]:
        """See `PositionsConfig.check`."""
        return ()


class Segments(Protocol):
    """Segments in the trunk."""

    def __call__(self, segments_BU: Tensor, /) -> Sequence[LayerBias] | None:
        """What the segments of units, int64 [B or 1, U], add in each layer, as a position code does."""
        ...


class SegmentsConfig(PartConfig, Protocol):
    """The settings of segments in the trunk."""

    def build(self, dimensions: Dimensions, trunk: TrunkSettings, /) -> Segments:
        """The module with fresh weights."""
        ...

    def check(self, trunk: TrunkSettings, /) -> Iterable[str]:
        """What is wrong with them in `trunk`, a line each."""
        ...


class SegmentsDefaults:
    """A config for any trunk."""

    def check(self, trunk: TrunkSettings) -> Iterable[str]:
        """See `SegmentsConfig.check`."""
        return ()


class TrunkSettings(Protocol):
    """The settings of the trunk as its parts see them (see `TrunkConfig`)."""

    @property
    def layers(self) -> int:
        """How many there are."""
        ...

    @property
    def heads(self) -> int:
        """H, of every layer."""
        ...

    @property
    def layer(self) -> LayerConfig:
        """The kind of layer."""
        ...

    @property
    def attention(self) -> AttentionConfig:
        """The attention pattern."""
        ...

    @property
    def positions(self) -> PositionsConfig:
        """The position code."""
        ...

    @property
    def segments(self) -> SegmentsConfig:
        """The segments."""
        ...


CONTRACTS = {
    slot: Contract(*classes, kind=nn.Module)
    for slot, classes in {
        "embedders": (EmbedderConfig, EmbedderDefaults, Embedder, EmbedderModule),
        "downsamplers": (
            DownsamplerConfig,
            DownsamplerDefaults,
            Downsampler,
            DownsamplerModule,
        ),
        "upsamplers": (UpsamplerConfig, UpsamplerDefaults, Upsampler),
        "layers": (LayerConfig, LayerDefaults, Layer),
        "attention": (AttentionConfig, AttentionDefaults, Attention, Core),
        "positions": (PositionsConfig, PositionsDefaults, Positions),
        "segments": (SegmentsConfig, SegmentsDefaults, Segments),
    }.items()
}
"""By the titles of slots (see `Slot.title`)."""


class PartSlot(Slot):
    """A `Slot` of the model."""

    def kept_contract(self) -> Contract:
        """That of its title."""
        return CONTRACTS[self.title]
