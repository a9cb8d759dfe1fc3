"""Abstract base classes of the parts of the model, of their modules and settings, and the settings of the trunk.

B batch, C characters (or bytes, or subwords), P targets, U units after DOWN, D width
"""

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
LAYER = Slot("tokenfree.train.model.layers", "bert", f"{_HERE}.LayerConfig")
ATTENTION = Slot("tokenfree.train.model.attention", "full", f"{_HERE}.AttentionConfig")
POSITIONS = Slot("tokenfree.train.model.positions", "none", f"{_HERE}.PositionsConfig")
SEGMENTS = Slot("tokenfree.train.model.segments", "none", f"{_HERE}.SegmentsConfig")
NEIGHBOURS = Slot("tokenfree.train.model.neighbours", "none", f"{_HERE}.NeighboursConfig")

SymbolKind = Literal["characters", "bytes", "subwords", "vectors"]
Sharing = Literal["none", "head_wise", "layer_wise"]
"""none: every layer and head has its own; head_wise: the heads of a layer share; layer_wise: the layers share."""


class Embedder(nn.Module, ABC):
    """A map from symbols to vectors.

    `forward(codepoints_BC, segments_BC, positions_BC=None)` takes int64 symbols or float vectors [B, C, S].
    It returns vectors [B, C, D] or `TableRows`. By default segments are 0 and positions 0 to C - 1.
    """

    # Whether `learn` is called with the frequent characters of the data before training.
    learns_characters = False

    def learn(self, codepoints: np.ndarray, /) -> None:
        """Learn the characters of the data, int64, the most frequent first."""
        raise AssertionError(f"{type(self).__name__} learns no characters")

    @abstractmethod
    def costs(self, length: int, /) -> list[Cost]:
        """Return its costs in computation order, for one example of `length` symbols."""


class EmbedderConfig(ABC):
    """Settings of an embedder. `symbols` is the meaning of its int64 inputs, or `vectors` for float inputs."""

    symbols: SymbolKind = "characters"

    @abstractmethod
    def build(self, dimensions: Dimensions, /) -> Embedder:
        """Return the module with initial weights; `dimensions.width` is the width of characters."""

    def check(self, width: int, length: int | None, /) -> list[str]:
        """Return its problems with characters of `width` and examples of `length` symbols (None: any length)."""
        return []


class Downsampler(nn.Module, ABC):
    """A map from characters to fewer units.

    `forward(x_BCD, mask_BC, *unit_ends_BU)` returns `Downsampled`. `mask_BC`, bool, is true for real
    characters. `unit_ends_BU`, int64, is the end (exclusive) of each unit in characters, passed only if
    `bytes_per_word` is set.
    """

    min_characters = 1  # length for one unit, to which shorter inputs are padded
    takes_rows = False  # whether `forward` accepts `TableRows`

    def widened(self, x_BCD: Any, /) -> Any:
        """Map vectors of single characters to the width of units, if it has a layer for that."""
        return x_BCD

    @abstractmethod
    def num_units(self, num_characters: int, /) -> int:
        """Return the number of units of `num_characters` characters, or the maximum if it depends on the text."""

    @abstractmethod
    def costs(self, length: int, /) -> list[Cost]:
        """Return its steps in the order of the computation, for one example of `length` characters."""


class DownsamplerConfig(ABC):
    changes_width = False  # whether the width of characters may differ from that of units
    # Number of Transformer layers over characters; the heads must divide the width of characters then.
    layers: int = 0
    rate: int = 1  # the length of an example must be a multiple of this
    bytes_per_word = None  # if units are words of the text: input bytes per word that it has room for

    @abstractmethod
    def build(self, dimensions: Dimensions, /) -> Downsampler:
        """Return the module with initial weights, from `dimensions.character_width` to `dimensions.width`."""

    def check(self, length: int | None, /) -> list[str]:
        """Return its problems with examples of `length` characters (None: any length), one line each."""
        return []

    def num_units(self, length: int, /) -> int | None:
        """Return the number of units of an example of `length` characters; None if it depends on the text."""
        return None


class Upsampler(nn.Module, ABC):
    """A map from units back to characters.

    `forward(units_BUD, grouping, characters_BCD, mask_BC, targets_BP=None)` returns vectors of all
    characters, or only those at `targets_BP`, int64. DOWN returns `characters_BCD`. If `max_pieces` is set,
    targets may also be [B, P, 2]: a unit and the index of its vector.
    """

    @abstractmethod
    def costs(self, length: int, num_targets: int | None, num_units: int, /) -> list[Cost]:
        """Return its costs in computation order, for `length` characters in `num_units` units."""


class UpsamplerConfig(ABC):
    residual_characters: bool = False  # whether characters are added to vectors of the model's width
    max_pieces = None  # maximum number of vectors per unit, if it makes several

    @abstractmethod
    def build(self, dimensions: Dimensions, /) -> Upsampler:
        """Return the module with initial weights."""

    def check(self, downsampler: DownsamplerConfig, /) -> list[str]:
        return []


class AttentionConfig(ABC):
    """Settings of an attention pattern, whose module is a `Core`."""

    # Whether some units have queries that position encodings cannot access.
    separate_global_projections: bool = False
    num_mixtures = None  # number of keys, if they are mixtures of units, without position and segment
    adds_to_values = False  # whether position encodings may add vectors to values (`Heads.offset_values`)

    @abstractmethod
    def build(self, dimensions: Dimensions, /, layer: int, num_layers: int) -> Core:
        """Return the pattern of layer `layer` (0 is the lowest) of `num_layers`, with initial weights."""

    def check(self, trunk: "TrunkConfig", num_units: int | None, /) -> Iterable[str]:
        """Return its problems with `trunk` and examples of `num_units` units (None: any number), one line each."""
        return ()


class Layer(nn.Module, ABC):
    """A layer of the trunk around an attention pattern.

    `forward(x_BUD, valid_BU, bias=None, *, global_BU=None)` returns [B, U, D]. `valid_BU`, bool, is true for
    real units. `global_BU`, bool, marks the units that attend to all units and are attended to by all.
    """

    core: Core
    num_heads: int

    @abstractmethod
    def multiply_accumulates(self, num_units: int, /) -> int:
        """Return the multiply-accumulates of one forward pass over `num_units` units."""


class LayerConfig(ABC):
    head_width: int | None = None  # width of a head; None: width / heads

    @abstractmethod
    def build(self, dimensions: Dimensions, build_core: Callable[[Dimensions], Core], /) -> Layer:
        """Return a layer with initial weights around the pattern of `build_core`."""

    def build_end(self, dimensions: Dimensions, /) -> nn.Module:
        """Return the module after the last layer, [B, U, D] to [B, U, D]."""
        return nn.Identity()


class Positions(nn.Module, ABC):
    """A position encoding in the trunk.

    `forward(units_BUD, valid_BU)` returns a list with a `LayerBias` for each layer, or with one that all
    layers share, or None if it never adds anything. It is called once per forward pass.
    """

    @abstractmethod
    def multiply_accumulates(self, num_units: int, pairs: list[int], /) -> int:
        """Return the number for one forward pass, given the visible `pairs` of each layer, summed over heads."""


class PositionsConfig(ABC):
    sharing: Sharing = "none"  # sharing of parameters between layers or heads, also the default for segments
    # Whether it supports keys that are mixtures of units (`AttentionConfig.num_mixtures`)
    takes_mixtures = False

    @abstractmethod
    def build(self, dimensions: Dimensions, trunk: "TrunkConfig", /) -> Positions:
        """Return the module with initial weights."""

    def check(self, trunk: "TrunkConfig", num_units: int | None, /) -> Iterable[str]:
        """Return its problems with `trunk` and examples of `num_units` units (None: any number), one line each."""
        return ()


class SegmentsConfig(ABC):
    """Settings of segments in the trunk.

    The module's `forward(segments_BU)` takes int64 [B or 1, U], and returns the same as that of `Positions`.
    """

    @abstractmethod
    def build(self, dimensions: Dimensions, trunk: "TrunkConfig", /) -> nn.Module:
        """Return the module with initial weights."""

    def check(self, trunk: "TrunkConfig", /) -> Iterable[str]:
        return ()


class NeighboursConfig(ABC):
    """Settings of a linear path from hashed n-grams to the scores of a head."""

    @abstractmethod
    def build(self, size: int, /) -> nn.Module | None:
        """Return the module, or None for no path. Its `forward` maps features, int64 [..., F], to [..., size].

        Features are hashes of train/batches/ngrams.py; negative ones are none. A new module returns 0.
        """


@settings
class TrunkConfig:
    """Stack of Transformer layers; the defaults are BERT base (Devlin et al., arXiv 1810.04805, section 3).

    `heads`, `inner_width`, `dropout` and `activation` also apply to the layers over characters.

    Attributes:
        layers: number of layers.
        heads: number of attention heads per layer; must divide the width.
        inner_width: width inside the FFN; null: four times the width.
        dropout: dropout probability in training, 0 to below 1.
        activation: `gelu_tanh`: tanh approximation of GELU, as in the official code of CANINE; `gelu`: exact
            GELU.
        layer: type of the layers.
        attention: attention pattern: which units attend to which.
        positions: position encoding inside the trunk.
        segments: segment encoding inside the trunk.
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
        """Return the problems of its parts with examples of `num_units` units (None: any number), one line each."""
        yield from self.attention.check(self, num_units)
        yield from self.positions.check(self, num_units)
        yield from self.segments.check(self)


def table_counts(sharing: Sharing, num_layers: int, num_heads: int) -> tuple[int, int]:
    """Return the numbers of layers and of heads with parameters of their own."""
    return 1 if sharing == "layer_wise" else num_layers, 1 if sharing == "head_wise" else num_heads


MAX_UNITS = "model.trunk.positions.max_units"


@settings
class SharingConfig(PositionsConfig):
    """Settings of a position encoding whose parameters may be shared.

    Attributes:
        sharing: sharing of parameters. `none`: each layer and head has its own; `head_wise`: the heads of a
            layer share; `layer_wise`: the layers share.
    """

    sharing: Sharing = "none"


def needs_own_queries(trunk: TrunkConfig) -> Iterable[str]:
    """Yield a problem if the attention pattern gives some units other queries than those that the positions use."""
    if trunk.attention.separate_global_projections:
        yield (
            f"model.trunk.positions.name: {trunk.positions.name} as it is set scales or reads the layer's queries, "
            "which global units have not; set model.trunk.attention.separate_global_projections to false"
        )
