"""The slots of the frame Y = UP(ENCODE(DOWN(embed(x)))): embedder, downsampler, upsampler.

For each slot a protocol of the part's `Config` and one of the module that it builds. What most parts answer alike
stands in a base class for either: `...Defaults` for the config, `...Module` for the module.

B batch, C characters (or bytes, or subwords), P targets, U units after DOWN, D width
"""

from typing import Literal, Protocol

import numpy as np
from torch import Tensor, nn

from tokenfree.train.model.common.cost import Cost
from tokenfree.train.model.common.dimensions import Dimensions
from tokenfree.train.model.common.grouping import Downsampled, Grouping
from tokenfree.train.model.common.rows import TableRows

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

    def build(self, dimensions: Dimensions, /) -> "Embedder":
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

    def build(self, dimensions: Dimensions, /) -> "Downsampler":
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

    def build(self, dimensions: Dimensions, /) -> "Upsampler":
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
