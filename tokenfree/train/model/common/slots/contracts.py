"""The contracts of the model's slots, and the fields that hold its parts (see `tokenfree.preprocess.common.contracts`).

`PartSlot` annotates such a field.
"""

from torch import nn

from tokenfree.preprocess.common.contracts import Contract
from tokenfree.preprocess.common.settings import Slot
from tokenfree.train.model.common.attention import Core
from tokenfree.train.model.common.slots import frame, trunk

CONTRACTS = {
    slot: Contract(*classes, kind=nn.Module)
    for slot, classes in {
        "embedders": (frame.EmbedderConfig, frame.EmbedderDefaults, frame.Embedder, frame.EmbedderModule),
        "downsamplers": (
            frame.DownsamplerConfig,
            frame.DownsamplerDefaults,
            frame.Downsampler,
            frame.DownsamplerModule,
        ),
        "upsamplers": (frame.UpsamplerConfig, frame.UpsamplerDefaults, frame.Upsampler),
        "trunk.layers": (trunk.LayerConfig, trunk.LayerDefaults, trunk.Layer),
        "trunk.attention": (trunk.AttentionConfig, trunk.AttentionDefaults, trunk.Attention, Core),
        "trunk.positions": (trunk.PositionsConfig, trunk.PositionsDefaults, trunk.Positions),
        "trunk.segments": (trunk.SegmentsConfig, trunk.SegmentsDefaults, trunk.Segments),
    }.items()
}
"""By the titles of slots (see `Slot.title`)."""


class PartSlot(Slot):
    """A `Slot` of the model."""

    def kept_contract(self) -> Contract:
        """That of its title."""
        return CONTRACTS[self.title]
