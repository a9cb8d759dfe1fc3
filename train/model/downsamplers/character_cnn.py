"""DOWN in the manner of CharacterBERT (El Boukkouri et al. 2020): convolutions of several widths over a word's bytes.

Each is followed by the maximum over the word; their concatenation goes through highway layers and a projection. By
default it has the 0.2M parameters (with the byte table) that Byte2Word compares its pooling to.

B batch, C bytes, U words, D width of bytes, F filters
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from preprocess.settings import settings
from train.dense import Dense
from train.downsamplers.grouping import Downsampled, Grouping
from train.downsamplers.words import WordOutput, Words, largest_in_words, too_many, words_of
from train.embedders.rows import Rows, look_up
from train.layers import Cost, Dimensions, count_parameters

Width = Annotated[int, Field(ge=1)]


@settings
class Config:
    name: Literal["character_cnn"] = "character_cnn"
    widths: tuple[Width, ...] = (1, 2, 3, 4, 5)
    counts: tuple[Width, ...] = (16, 32, 48, 48, 48)  # filters of each width
    highways: Annotated[int, Field(ge=0)] = 2
    word_width: Annotated[int, Field(ge=1)] = 192
    max_words: Annotated[int, Field(ge=1)] = 512
    bytes_per_word: Annotated[int, Field(ge=1)] = 8  # room for so many on the average: decides how many words fit

    changes_width: ClassVar[bool] = True

    def build(self, dimensions: Dimensions) -> "CharacterCnn":
        return CharacterCnn(self, dimensions)

    def check(self, length: int | None) -> list[str]:
        mistakes = too_many(length, self.bytes_per_word, self.max_words)
        if not self.widths or len(self.widths) != len(self.counts):
            mistakes.append(
                f"model.downsampler.counts: {len(self.counts)} counts for {len(self.widths)} widths; give one for each"
            )
        return mistakes


class Highway(nn.Module):
    """g ReLU(W x) + (1 - g) x with a learned gate g (Srivastava et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = Dense(width, width)
        self.gate = Dense(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * self.change(x).relu() + (1 - gate) * x


class CharacterCnn(nn.Module):
    """Convolutions that end with the word: what lies beyond its last byte is 0 to them."""

    min_characters = 1
    takes_rows = True

    def __init__(self, config: Config, dimensions: Dimensions) -> None:
        super().__init__()
        self.bytes_per_word = config.bytes_per_word
        self.widths = config.widths
        width, num_filters = dimensions.character_width, sum(config.counts)
        self.filters = nn.ModuleList(
            Dense(kernel * width, count) for kernel, count in zip(config.widths, config.counts, strict=True)
        )
        self.highways = nn.Sequential(*(Highway(num_filters) for _ in range(config.highways)))
        self.projection = Dense(num_filters, config.word_width)
        self.output = WordOutput(config.word_width, config.max_words, dimensions)

    def forward(self, x: Tensor | Rows, mask_BC: Tensor, unit_ends_BU: Tensor | None = None) -> Downsampled:
        """A unit for each word that ends at `unit_ends_BU`, or for each character where that is not given.

        Raises:
            UserError: for more words than `max_words`.
        """
        words = words_of(mask_BC, unit_ends_BU)
        self.output.refuse_too_many(words.valid_BU.shape[1])
        x_BCD = look_up(x)
        found_BUF = largest_in_words(self.convolve(x_BCD, words), words, 0.0)
        pooled_BUD = self.projection(self.highways(found_BUF))
        units_BUD = self.output(pooled_BUD, words, x.segments_BC if isinstance(x, Rows) else None)
        return Downsampled(units_BUD, words.valid_BU, Grouping(words.word_BC), x_BCD)

    def convolve(self, x_BCD: Tensor, words: Words) -> Tensor:
        """ReLU of all filters that begin at each byte, [B, C, F]; 0 beyond the text."""
        taps = [x_BCD * words.real_BC[..., None]]
        for shift in range(1, max(self.widths)):
            # A later byte of the same word has the place that is `shift` further.
            shifted = _shift(taps[0], shift)
            same_BC = words.real_BC & (_shift(words.place_BC + 1, shift) == words.place_BC + 1 + shift)
            taps.append(shifted * same_BC[..., None])
        window_BCX = torch.cat(taps, dim=-1)
        found = [layer(window_BCX[..., : layer.in_features]) for layer in self._filters()]
        return torch.cat(found, dim=-1).relu() * words.real_BC[..., None]

    def num_units(self, num_characters: int) -> int:
        """Words for which there is room beside `num_characters` bytes."""
        return max(num_characters // self.bytes_per_word, 1)

    def costs(self, length: int) -> list[Cost]:
        """For an example of `length` bytes in as many words as have room."""
        num_words, num_filters = self.num_units(length), self.projection.in_features
        convolutions = length * sum(layer.weight.numel() for layer in self._filters())
        highways = num_words * len(self.highways) * 2 * num_filters**2
        projection = num_words * self.projection.weight.numel()
        return [
            Cost("character convolutions", (num_words, num_filters), count_parameters(self.filters), convolutions),
            Cost("highways", (num_words, num_filters), count_parameters(self.highways), highways),
            Cost(
                "pooled projection",
                (num_words, self.projection.out_features),
                count_parameters(self.projection),
                projection,
            ),
            *self.output.costs(num_words),
        ]

    def _filters(self) -> list[Dense]:
        return [layer for layer in self.filters if isinstance(layer, Dense)]


def _shift(x: Tensor, shift: int) -> Tensor:
    """Row c + shift of the second axis at c, 0 beyond the last."""
    return torch.cat([x[:, shift:], torch.zeros_like(x[:, :shift])], dim=1)
