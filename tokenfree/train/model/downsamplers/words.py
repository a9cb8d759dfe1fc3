"""Functions that word poolings share: the word of each character, sums over words, and the output layer.

N words of the whole batch
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.basic import (
    Cost,
    Dense,
    Dimensions,
    Downsampled,
    Dropout,
    Grouping,
    SinusoidTable,
    TableRows,
    count_parameters,
    is_exporting,
    layer_norm,
    look_up,
    refuse_more,
)
from tokenfree.train.model.common.slots import Downsampler, DownsamplerConfig

NUM_TYPES = 2


class WordSpans(NamedTuple):
    """Words of a batch: runs of characters that start at the first character and leave no gaps."""

    word_BC: Tensor  # int64: the word of each character; beyond the text, its last word
    position_BC: Tensor  # int64: the position of the character in its word
    real_BC: Tensor  # bool: whether the character belongs to a word
    starts_BU: Tensor  # int64: the first character of each word
    valid_BU: Tensor  # bool: words with at least one character


@settings
class WordsConfig(DownsamplerConfig):
    """Settings that all poolings of words share.

    Attributes:
        max_words: maximum number of words of an example; number of rows of the position table.
        bytes_per_word: number of input bytes per word; an input of N bytes has room for N / bytes_per_word
            words.
    """

    max_words: Positive = 512
    bytes_per_word: Positive = 8

    changes_width = True

    def check(self, length: int | None) -> list[str]:
        if length is None or length // self.bytes_per_word <= self.max_words:
            return []
        return [
            f"model.downsampler.max_words: {self.max_words} is less than the {length // self.bytes_per_word} words of "
            f"{length} bytes; raise it or model.downsampler.bytes_per_word"
        ]


class WordDownsampler(Downsampler):
    """A downsampler whose units are words. Subclasses define `of_words`."""

    takes_rows = True

    def __init__(self, config: WordsConfig) -> None:
        super().__init__()
        self.bytes_per_word, self.max_words = config.bytes_per_word, config.max_words

    def forward(
        self, x: Tensor | TableRows, mask_BC: Tensor, unit_ends_BU: Tensor | None = None
    ) -> Downsampled:
        """Return a unit [B, U, D] for each word that ends at `unit_ends_BU`, or for each character if that is None."""
        words = find_words(mask_BC, unit_ends_BU)
        refuse_more(words.valid_BU.shape[1], self.max_words, "words", "model.downsampler.max_words")
        return Downsampled(self.of_words(x, words), words.valid_BU, Grouping(words.word_BC), look_up(x))

    @abstractmethod
    def of_words(self, x: Tensor | TableRows, words: WordSpans) -> Tensor: ...

    def num_units(self, num_characters: int) -> int:
        return max(num_characters // self.bytes_per_word, 1)


def find_words(mask_BC: Tensor, ends_BU: Tensor | None) -> WordSpans:
    """Return the words of the real characters that end before `ends_BU`, int64.

    None: each character is a word.
    """
    characters_C = torch.arange(mask_BC.shape[1], device=mask_BC.device)
    if ends_BU is None:
        characters_BC = characters_C.expand(mask_BC.shape)
        return WordSpans(characters_BC, torch.zeros_like(characters_BC), mask_BC, characters_BC, mask_BC)
    starts_BU = torch.cat([torch.zeros_like(ends_BU[:, :1]), ends_BU[:, :-1]], dim=1)
    # ONNX lacks searchsorted.
    if is_exporting():
        word_BC = (ends_BU[:, None] <= characters_C[:, None]).sum(dim=-1)
        last_B1 = (ends_BU < ends_BU[:, -1:]).sum(dim=-1, keepdim=True)
    else:
        word_BC = torch.searchsorted(ends_BU, characters_C.repeat(len(ends_BU), 1), right=True)
        last_B1 = torch.searchsorted(ends_BU, ends_BU[:, -1:].contiguous())
    # Ignore empty words after the text.
    word_BC = word_BC.minimum(last_B1)
    real_BC = mask_BC & (characters_C < ends_BU[:, -1:])
    position_BC = (characters_C - starts_BU.gather(1, word_BC)) * real_BC
    return WordSpans(word_BC, position_BC, real_BC, starts_BU, ends_BU > starts_BU)


def sum_over_words(x_BCD: Tensor, words: WordSpans) -> Tensor:
    """Return the sum of the rows of each word, [B, U, D]. Rows beyond the text must be 0."""
    num_words = words.valid_BU.shape[1]
    sums_ND = x_BCD.new_zeros(len(x_BCD) * num_words, x_BCD.shape[-1])
    index_N = _flat(words).flatten()[:, None].expand(-1, x_BCD.shape[-1])
    return sums_ND.scatter_add(0, index_N, x_BCD.flatten(0, 1)).unflatten(0, (-1, num_words))


def largest_in_words(x_BCD: Tensor, words: WordSpans, minimum: float) -> Tensor:
    """Return the maximum of `minimum` and each word's rows, [B, U, D].

    Rows beyond the text must not exceed `minimum`.
    """
    num_words = words.valid_BU.shape[1]
    max_ND = x_BCD.new_full((len(x_BCD) * num_words, x_BCD.shape[-1]), minimum)
    index_N = _flat(words).flatten()[:, None].expand(-1, x_BCD.shape[-1])
    return max_ND.scatter_reduce(0, index_N, x_BCD.flatten(0, 1), "amax").unflatten(0, (-1, num_words))


def softmax_in_words(logits_BC: Tensor, words: WordSpans) -> Tensor:
    """Return weights [B, C] that sum to 1 in each word and are exactly 0 beyond the text."""
    lowest = torch.finfo(logits_BC.dtype).min
    logits_BC = logits_BC.masked_fill(~words.real_BC, lowest)
    # The shift only prevents overflow.
    with torch.no_grad():
        highest_BU = largest_in_words(logits_BC[..., None], words, lowest)[..., 0]
        highest_BC = highest_BU.gather(1, words.word_BC)
    weights_BC = (logits_BC - highest_BC).exp() * words.real_BC
    totals_BU = sum_over_words(weights_BC[..., None], words)[..., 0]
    # At least 1, except beyond the text.
    return weights_BC / totals_BU.gather(1, words.word_BC).clamp(min=1e-30)


class WordOutput(nn.Module):
    """LN(e + position of the word + type) W_proj: from pooled vectors of words to units of the trunk.

    Only the ratio of `place_std`, the initial standard deviation of positions, to e matters, because of the
    LayerNorm.
    """

    def __init__(self, word_width: int, max_words: int, dimensions: Dimensions, *, place_std: float) -> None:
        super().__init__()
        self.places = SinusoidTable(max_words, word_width, std=place_std)
        self.types = nn.Embedding(NUM_TYPES, word_width)
        self.norm = layer_norm(word_width)
        self.dropout = Dropout(dimensions.dropout)
        self.projection = Dense(word_width, dimensions.width)

    def forward(self, pooled_BUD: Tensor, words: WordSpans, segments_BC: Tensor | None) -> Tensor:
        """Return units [B, U, D].

        The type of a word is the segment of its first character; without segments, 0.
        """
        num_words = pooled_BUD.shape[1]
        type_BUD = self.types.weight[0]
        if segments_BC is not None:
            last = segments_BC.shape[1] - 1
            type_BUD = self.types(segments_BC.gather(1, words.starts_BU.clamp(max=last)))
        summed_BUD = pooled_BUD + self.places.weight[:num_words] + type_BUD
        return self.projection(self.dropout(self.norm(summed_BUD)))

    def costs(self, num_words: int) -> list[Cost]:
        word_width, width = self.projection.in_features, self.projection.out_features
        return [
            Cost("word positions", (num_words, word_width), count_parameters(self.places), 0),
            Cost("word types", (num_words, word_width), count_parameters(self.types), 0),
            Cost("word norm", (num_words, word_width), count_parameters(self.norm), 0),
            Cost(
                "word projection",
                (num_words, width),
                count_parameters(self.projection),
                num_words * word_width * width,
            ),
        ]


def _flat(words: WordSpans) -> Tensor:
    batch, num_words = words.valid_BU.shape
    return words.word_BC + torch.arange(batch, device=words.word_BC.device)[:, None] * num_words
