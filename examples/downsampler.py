"""Write a downsampler and pretrain a model with it: `python examples/downsampler.py`.

It reads the demo's little corpus. Put your own dump in its place.
"""

# %%
import os
from pathlib import Path

import tokenfree  # before torch
import torch
import torch.nn.functional as F
from tokenfree.core.settings import settings
from tokenfree.train.model.common.basic import Cost, Dimensions, Downsampled, Grouping
from tokenfree.train.model.common.slots import Downsampler, DownsamplerConfig
from tokenfree.workflows.demo_corpus.corpus import write_demo_corpus
from torch import Tensor

STEPS = int(os.environ.get("STEPS", "1800"))  # a few are enough to see that it runs
OUTPUT = Path("downsampler")


# %%
# The settings: each field is a key of the recipe. To use the class elsewhere, move both into a module.
@settings
class MaxPool(DownsamplerConfig):
    name: str = "__main__.MaxPool"
    rate: int = 4

    def build(self, dimensions: Dimensions) -> "MaxPooling":
        return MaxPooling(self.rate, dimensions.width)

    def num_units(self, length: int) -> int:
        return -(-length // self.rate)


# The module: a unit has the largest value of each component over `rate` characters.
class MaxPooling(Downsampler):  # B batch, C characters, U units, R characters of a unit, D width
    def __init__(self, rate: int, width: int) -> None:
        super().__init__()
        self.rate, self.width = rate, width

    def forward(self, x_BCD: Tensor, mask_BC: Tensor) -> Downsampled:
        missing = -x_BCD.shape[1] % self.rate
        mask_BUR = F.pad(mask_BC, (0, missing)).unflatten(1, (-1, self.rate))
        x_BURD = F.pad(x_BCD, (0, 0, 0, missing)).unflatten(1, (-1, self.rate))
        units_BUD = x_BURD.masked_fill(~mask_BUR[..., None], -1e4).amax(dim=2)
        unit_BC = torch.arange(x_BCD.shape[1], device=x_BCD.device)[None] // self.rate
        return Downsampled(units_BUD, mask_BUR.any(dim=-1), Grouping(unit_BC), x_BCD)

    def num_units(self, num_characters: int) -> int:
        return -(-num_characters // self.rate)

    def costs(self, length: int) -> list[Cost]:
        return [Cost("max pooling", (self.num_units(length), self.width), 0, 0)]


# %%
# Of your own: wikipedia=["dumps/..."], books=["books/"]
corpus = write_demo_corpus(OUTPUT / "corpus")
config = tokenfree.Recipe.for_preprocessing("wikipedia-tiny", wikipedia=corpus.wikipedia, books=corpus.books)
tokenfree.run_preprocess(config, str(OUTPUT / "data"))

# %%
for name in ("strided_conv", "__main__.MaxPool"):  # CANINE's convolution, and the new part
    change = {"model": {"downsampler": {"name": name, "rate": 4}}, "train": {"steps": STEPS}}
    recipe = tokenfree.Recipe.from_name("canine-fast-tiny", **change)
    result = tokenfree.pretrain(recipe, str(OUTPUT / "data"), str(OUTPUT / name))
    print(f"{name}: held-out loss {result.validation_loss:.3f} nats")
