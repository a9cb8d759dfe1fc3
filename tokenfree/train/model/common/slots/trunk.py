"""The slots of the trunk: layer, attention, positions and segments, and the trunk as its parts see it.

For each slot a protocol of the part's `Config` and one of the module that it builds. What most parts answer alike
stands in a base class for the config, `...Defaults`; attention patterns build on `Core`.

B batch, U units, Q queries, K keys, H heads, E width of a head, D width
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from torch import Tensor, nn

from tokenfree.train.model.common.dimensions import Dimensions
from tokenfree.train.model.common.heads import Heads
from tokenfree.train.model.common.position_bias import LayerBias
from tokenfree.train.model.common.slots.frame import PartConfig

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

    def check(self, trunk: "TrunkSettings", num_units: int | None, /) -> Iterable[str]:
        """What is wrong with it in `trunk` for examples of `num_units` units (any number where None), a line each."""
        ...


class AttentionDefaults:
    """A config of a pattern over the units themselves, with the projections of the layer."""

    separate_global_projections = False
    num_mixtures = None
    adds_to_values = False

    def check(self, trunk: "TrunkSettings", num_units: int | None) -> Iterable[str]:
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

    def build(self, dimensions: Dimensions, trunk: "TrunkSettings", /) -> Positions:
        """The module with fresh weights."""
        ...

    def check(self, trunk: "TrunkSettings", num_units: int | None, /) -> Iterable[str]:
        """What is wrong with it in `trunk` for examples of `num_units` units (any number where None), a line each."""
        ...


class PositionsDefaults:
    """A config of a code with nothing to share, for any trunk whose keys are units."""

    sharing = "none"
    takes_mixtures = False

    def check(self, trunk: "TrunkSettings", num_units: int | None) -> Iterable[str]:
        """See `PositionsConfig.check`."""
        return ()


class Segments(Protocol):
    """Segments in the trunk."""

    def __call__(self, segments_BU: Tensor, /) -> Sequence[LayerBias] | None:
        """What the segments of units, int64 [B or 1, U], add in each layer, as a position code does."""
        ...


class SegmentsConfig(PartConfig, Protocol):
    """The settings of segments in the trunk."""

    def build(self, dimensions: Dimensions, trunk: "TrunkSettings", /) -> Segments:
        """The module with fresh weights."""
        ...

    def check(self, trunk: "TrunkSettings", /) -> Iterable[str]:
        """What is wrong with them in `trunk`, a line each."""
        ...


class SegmentsDefaults:
    """A config for any trunk."""

    def check(self, trunk: "TrunkSettings") -> Iterable[str]:
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
