"""DOWN of CharacterBERT: convolutions of several widths over the bytes of a word, and their maximum.

X values of a filter's bytes, F filters
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.basic import (
    Cost,
    Dense,
    Dimensions,
    FanInDense,
    GateDense,
    TableRows,
    count_parameters,
    look_up,
)
from tokenfree.train.model.downsamplers.words import (
    WordDownsampler,
    WordOutput,
    WordsConfig,
    WordSpans,
    largest_in_words,
)


@settings
class Config(WordsConfig):
    """Character convolutions of CharacterBERT (El Boukkouri et al., arXiv 2010.10392), over bytes.

    Highway layers and a projection follow the maximum over the word. The default has 0.2M parameters with the
    byte table, as the baseline that Byte2Word compares its pooling with (arXiv 2211.12677).

    Attributes:
        widths: filter widths in bytes.
        counts: number of filters of each width; one number per width.
        highways: number of highway layers; 0: none.
        word_width: width of words before the last projection.
    """

    name: Literal["character_cnn"] = "character_cnn"
    widths: tuple[Positive, ...] = (1, 2, 3, 4, 5)
    counts: tuple[Positive, ...] = (16, 32, 48, 48, 48)
    highways: Annotated[int, Field(ge=0, le=1000)] = 2
    word_width: Positive = 192

    def build(self, dimensions: Dimensions) -> "CharacterCnn":
        return CharacterCnn(self, dimensions)

    def check(self, length: int | None) -> list[str]:
        problems = super().check(length)
        if not self.widths or len(self.widths) != len(self.counts):
            problems.append(
                f"model.downsampler.counts: {len(self.counts)} counts for {len(self.widths)} widths; give one for each"
            )
        return problems


class Highway(nn.Module):
    """g ReLU(W x) + (1 - g) x with a learned gate g (Srivastava et al., arXiv 1505.00387, equation 3)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = Dense(width, width)
        self.gate = GateDense(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * self.change(x).relu() + (1 - gate) * x


class CharacterCnn(WordDownsampler):
    """Convolutions over the bytes of a word. Bytes past its end count as 0."""

    def __init__(self, config: Config, dimensions: Dimensions) -> None:
        super().__init__(config)
        self.widths = config.widths
        width, num_filters = dimensions.character_width, sum(config.counts)
        self.filters = nn.ModuleList(
            FanInDense(kernel * width, count)
            for kernel, count in zip(config.widths, config.counts, strict=True)
        )
        self.highways = nn.Sequential(*(Highway(num_filters) for _ in range(config.highways)))
        self.projection = FanInDense(num_filters, config.word_width)
        self.output = WordOutput(config.word_width, config.max_words, dimensions, place_std=0.3)

    def of_words(self, x: Tensor | TableRows, words: WordSpans) -> Tensor:
        # 0: the maximum of ReLUs.
        max_BUF = largest_in_words(self.convolve(look_up(x), words), words, 0.0)
        pooled_BUD = self.projection(self.highways(max_BUF))
        return self.output(pooled_BUD, words, x.segments_BC if isinstance(x, TableRows) else None)

    def convolve(self, x_BCD: Tensor, words: WordSpans) -> Tensor:
        """Return all filters that start at each byte, [B, C, F]; 0 beyond the text."""
        taps = [x_BCD * words.real_BC[..., None]]
        for shift in range(1, max(self.widths)):
            # In the same word, the byte `shift` further has a position that is larger by `shift`.
            shifted = _shift(taps[0], shift)
            same_BC = words.real_BC & (_shift(words.position_BC + 1, shift) == words.position_BC + 1 + shift)
            taps.append(shifted * same_BC[..., None])
        window_BCX = torch.cat(taps, dim=-1)
        features = [layer(window_BCX[..., : layer.in_features]) for layer in self._filters()]
        return torch.cat(features, dim=-1) * words.real_BC[..., None]

    def costs(self, length: int) -> list[Cost]:
        num_words, num_filters = self.num_units(length), self.projection.in_features
        convolutions = length * sum(layer.weight.numel() for layer in self._filters())
        highways = num_words * len(self.highways) * 2 * num_filters**2
        projection = num_words * self.projection.weight.numel()
        return [
            Cost(
                "character convolutions",
                (num_words, num_filters),
                count_parameters(self.filters),
                convolutions,
            ),
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
    return torch.cat([x[:, shift:], torch.zeros_like(x[:, :shift])], dim=1)
