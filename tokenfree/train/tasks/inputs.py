"""Inputs of tasks: texts as a model reads them, in characters, subwords, bytes or words of bytes.

An input is [CLS] text [SEP], or [CLS] text [SEP] second [SEP] with the second text in segment 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.features.vocabulary import MAX_TEXT_CHARACTERS, Vocabulary
from tokenfree.preprocess.text.characters import codepoints_of
from tokenfree.preprocess.text.specials import (
    BYTE_CLS,
    BYTE_MASK,
    BYTE_SEP,
    BYTE_UNK,
    CLS,
    NUM_SUBWORD_SPECIALS,
    RESERVED,
    SEP,
    of_subwords,
)
from tokenfree.train.batches.base import Arrays, ragged_range
from tokenfree.train.batches.words import NOWHERE, NUM_FRAME, text_words, word_capacity
from tokenfree.train.model.common.basic import round_up
from tokenfree.train.model.encoder import ModelConfig, check

_NOTHING = np.zeros(0, dtype=np.int64)
_BUCKET = 8  # batch lengths are multiples of this
_REPLACEMENT = 0xFFFD


class Padding:
    """The lengths of inputs for a model of characters, bytes or subwords, up to the length of its training.

    Inputs are padded by at least `spare` positions, to whole groups of `group` positions. UP reads `reach`
    positions ahead. If these enter a block of local attention (`block` positions) that holds only padding,
    inputs are padded to the end of that block. If there is room, lengths are multiples of `bucket`, so that
    there are few different ones.
    """

    def __init__(self, config: ModelConfig, length: int, *, bucket: int = 1) -> None:
        self._config, self._bucket = config, bucket
        self.group: int = config.downsampler.rate
        self.length = length - length % self.group
        self.reach = max(2, getattr(config.upsampler, "kernel", 0) // 2)
        self.spare = max(self.group + self.reach, 6)
        self.block: int | None = getattr(config.downsampler, "block", None)
        # By the shortest length: the first one that the model's parts accept.
        self._accepted: dict[int, int] = {}

    def padded(self, positions: Iterable[int]) -> int:
        """Return the shortest length for inputs of `positions` at which more padding would not change their outputs."""
        shortest = max(self._min_length(count) for count in set(positions))
        if shortest not in self._accepted:
            lengths = range(shortest, self.length + 1, self.group)
            last = self.length - self._bucket
            candidates = (length for length in lengths if length % self._bucket == 0 or length > last)
            self._accepted[shortest] = next(
                length for length in candidates if not check(self._config, length)
            )
        return self._accepted[shortest]

    def _min_length(self, positions: int) -> int:
        length = round_up(positions + self.spare, self.group)
        if self.block is None:
            return length
        # Up to the end of the last unit that UP reads.
        read = round_up(positions + self.reach, self.group)
        if (read - 1) // self.block > (positions - 1) // self.block:
            length = max(length, round_up(round_up(read, self.block), self.group))
        return min(length, self.length)


class TextSymbols(NamedTuple):
    symbols: np.ndarray  # integers [n]: input of the embedder
    vectors: np.ndarray  # int64 [characters]: number of each character's vector in the text; -1: none
    # Int64 [vectors]: exclusive last symbol of each vector, if units are words.
    unit_ends: np.ndarray | None = None

    @property
    def num_vectors(self) -> int:
        return len(self.symbols) if self.unit_ends is None else len(self.unit_ends)

    @property
    def num_characters(self) -> int:
        return int((self.vectors != NOWHERE).sum())


def joined(texts: Iterable[TextSymbols]) -> TextSymbols:
    parts = list(texts)
    if len(parts) == 1:
        return parts[0]
    symbols = np.concatenate([part.symbols for part in parts]) if parts else _NOTHING
    vectors, ends, num_vectors, num_symbols = [_NOTHING], list[np.ndarray](), 0, 0
    for part in parts:
        vectors.append(np.where(part.vectors == NOWHERE, NOWHERE, part.vectors + num_vectors))
        if part.unit_ends is not None:
            ends.append(part.unit_ends + num_symbols)
        num_vectors += part.num_vectors
        num_symbols += len(part.symbols)
    return TextSymbols(symbols, np.concatenate(vectors), np.concatenate(ends) if ends else None)


def part_of(text: TextSymbols, begin: int, end: int) -> TextSymbols:
    """Return vectors `begin` to `end` of a text, and its characters from the first to the last one in these vectors."""
    first, last, unit_ends = begin, end, None
    if text.unit_ends is not None:
        first, last = (int(text.unit_ends[at - 1]) if at else 0 for at in (begin, end))
        unit_ends = text.unit_ends[begin:end] - first
    inside = np.flatnonzero((text.vectors >= begin) & (text.vectors < end))
    vectors = text.vectors[inside[0] : inside[-1] + 1] - begin if len(inside) else text.vectors[:0]
    outside = (vectors < 0) | (vectors >= end - begin)
    return TextSymbols(text.symbols[first:last], np.where(outside, NOWHERE, vectors), unit_ends)


def compact(text: TextSymbols) -> TextSymbols:
    """Return the symbols of a text in the smallest integer type, without the vectors of its characters."""
    symbols = text.symbols.astype(np.min_scalar_type(text.symbols.max(initial=0)))
    unit_ends = None if text.unit_ends is None else text.unit_ends.astype(np.int32)
    return TextSymbols(symbols, _NOTHING, unit_ends)


class TextInputs(ABC):
    """A converter of texts to arrays for one model.

    `symbols` is their name in messages, such as "characters".
    """

    symbols = "symbols"
    length: int
    reads_ngrams = False  # whether the model has a linear path over n-grams

    @abstractmethod
    def encode(self, text: str, original: str | None = None) -> TextSymbols:
        """Return a text of any length.

        A model of words splits it as in `original`, the text with its original case.
        """

    def size(self, parts: Sequence[TextSymbols]) -> int:
        return 1 + sum(len(part.symbols) + 1 for part in parts)

    @abstractmethod
    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """Return the number of positions by which these texts exceed an input; 0 if they fit."""

    @abstractmethod
    def fitting(self, text: TextSymbols, begin: int = 0, first: TextSymbols | None = None) -> int:
        """Return the number of vectors of `text`, from `begin` on, that fit in after `first`; below 1 if none fits."""

    @abstractmethod
    def arrays(self, inputs: Sequence[Sequence[TextSymbols]], length: int | None = None) -> Arrays:
        """Return `codepoints` int64 [b, length], `mask` bool, `segments` int64 if there are second texts, and
        `unit_ends` int64 [b, units] if units are words. The default `length` is the shortest that fits.
        """

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """Return the number of each text's first vector in the input."""
        return _begins([part.num_vectors for part in parts])

    def _framed(self, inputs: Sequence[Sequence[TextSymbols]], length: int, cls: int, sep: int) -> Arrays:
        codepoints, segments = (np.zeros((len(inputs), length), dtype=np.int64) for _ in range(2))
        codepoints[:, 0] = cls
        for row, parts in enumerate(inputs):
            begins = _begins([len(part.symbols) for part in parts])
            for number, (part, begin) in enumerate(zip(parts, begins, strict=True)):
                end = begin + len(part.symbols)
                codepoints[row, begin:end], codepoints[row, end] = part.symbols, sep
                segments[row, begin : end + 1] = number
        sizes = np.array([self.size(parts) for parts in inputs])
        arrays = {"codepoints": codepoints, "mask": np.arange(length) < sizes[:, None]}
        return arrays | ({"segments": segments} if len(inputs[0]) > 1 else {})


def _begins(sizes: Sequence[int]) -> list[int]:
    return (1 + np.cumsum([0, *(size + 1 for size in sizes)]))[:-1].tolist()


def cut(inputs: TextInputs, text: TextSymbols, stride: float) -> Iterator[TextSymbols]:
    """Yield windows of a text, from left to right, that each fit into an input.

    A text that fits is one window. Each window begins `stride` of a full window after the previous one, so
    they overlap if `stride` is below 1.
    """
    begin = 0
    while True:
        end = begin + inputs.fitting(text, begin)
        yield part_of(text, begin, end)
        if end == text.num_vectors:
            return
        begin += max(1, int((end - begin) * stride))


class SymbolInputs(TextInputs):
    """Inputs with one vector per symbol. Raises UserError if no text fits into `length`."""

    def __init__(self, model: ModelConfig, length: int, *, cls: int, sep: int) -> None:
        self.length = length
        self._padding = Padding(model, length, bucket=_BUCKET)
        self._most = self._padding.length - self._padding.spare
        self._cls, self._sep = cls, sep
        if self._most <= NUM_FRAME:
            min_length = NUM_FRAME + self._padding.spare + 1
            raise UserError(
                f"train.length: {length} positions leave none for text. Make it at least {min_length}."
            )

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        return max(0, self.size(parts) - self._most)

    def fitting(self, text: TextSymbols, begin: int = 0, first: TextSymbols | None = None) -> int:
        used = 0 if first is None else len(first.symbols) + 1
        return min(len(text.symbols) - begin, self._most - NUM_FRAME - used)

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]], length: int | None = None) -> Arrays:
        length = length or self._padding.padded(map(self.size, inputs))
        return self._framed(inputs, length, self._cls, self._sep)


class CharacterInputs(SymbolInputs):
    """Inputs of characters. Characters that are reserved for special symbols become U+FFFD."""

    symbols = "characters"

    def __init__(self, model: ModelConfig, length: int) -> None:
        super().__init__(model, length, cls=CLS, sep=SEP)

    def encode(self, text: str, original: str | None = None) -> TextSymbols:
        codepoints = codepoints_of(text).copy()
        codepoints[np.isin(codepoints, RESERVED)] = _REPLACEMENT
        return TextSymbols(codepoints, np.arange(len(codepoints)))


class SubwordInputs(SymbolInputs):
    """Inputs of subword ids. Special symbols follow the ids of the vocabulary. White space has no vector."""

    symbols = "subwords"

    def __init__(self, model: ModelConfig, length: int, vocabulary: Vocabulary) -> None:
        specials = of_subwords(vocabulary.size)
        super().__init__(model, length, cls=specials.cls, sep=specials.sep)
        self._vocabulary = vocabulary

    def encode(self, text: str, original: str | None = None) -> TextSymbols:
        starts = range(0, max(1, len(text)), MAX_TEXT_CHARACTERS)
        return joined(self._encode(text[start : start + MAX_TEXT_CHARACTERS]) for start in starts)

    def _encode(self, text: str) -> TextSymbols:
        try:
            text.encode()
        except UnicodeEncodeError:  # SentencePiece rejects lone surrogates; the replacement keeps the length
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        encoding = self._vocabulary.encode_flat([text])
        vectors = np.full(len(text), NOWHERE)
        spans = zip(encoding.starts.tolist(), encoding.ends.tolist(), strict=True)
        # The first subword of a character is written last.
        for place, (start, end) in reversed(list(enumerate(spans))):
            vectors[start:end] = place
        return TextSymbols(encoding.ids, vectors)


class ByteInputs(SymbolInputs):
    """Inputs of bytes. U+0000 to U+0004 become UNK. The vector of a character is that of its first byte."""

    symbols = "bytes"

    def __init__(self, model: ModelConfig, length: int) -> None:
        super().__init__(model, length, cls=BYTE_CLS, sep=BYTE_SEP)

    def encode(self, text: str, original: str | None = None) -> TextSymbols:
        encoded = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        is_first = (encoded & 0xC0) != 0x80
        return TextSymbols(np.where(encoded <= BYTE_MASK, BYTE_UNK, encoded), np.flatnonzero(is_first))


class WordInputs(TextInputs):
    """Inputs of the bytes of words, with one vector per word. White space and special symbols have none."""

    symbols = "words and bytes"

    def __init__(self, model: ModelConfig, length: int) -> None:
        self.length = length
        self._num_words, self._num_bytes = word_capacity(length, model.downsampler.bytes_per_word)

    def encode(self, text: str, original: str | None = None) -> TextSymbols:
        utf8, starts, ends, vectors = text_words(text, original)
        sizes = ends - starts
        return TextSymbols(utf8[ragged_range(starts, sizes)], vectors, np.cumsum(sizes))

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        words = sum(part.num_vectors + 1 for part in parts) + 1 - NUM_FRAME
        return max(0, self.size(parts) - NUM_FRAME - self._num_bytes, words - self._num_words)

    def fitting(self, text: TextSymbols, begin: int = 0, first: TextSymbols | None = None) -> int:
        assert text.unit_ends is not None, "words"
        num_words, num_bytes = (
            self._num_words,
            self._num_bytes + (int(text.unit_ends[begin - 1]) if begin else 0),
        )
        if first is not None:
            num_words, num_bytes = num_words - first.num_vectors - 1, num_bytes - len(first.symbols) - 1
        return min(num_words, int(np.searchsorted(text.unit_ends, num_bytes, side="right")) - begin)

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]], length: int | None = None) -> Arrays:
        sizes = [self.size(parts) for parts in inputs]
        arrays = self._framed(inputs, length or round_up(max(sizes), _BUCKET), BYTE_CLS, BYTE_SEP)
        max_units = max(sum(part.num_vectors + 1 for part in parts) + 1 for parts in inputs)
        num_units = min(round_up(max_units, _BUCKET // 4), self._num_words + NUM_FRAME)
        unit_ends = np.repeat(np.array(sizes)[:, None], num_units, axis=1)
        unit_ends[:, 0] = 1
        for row, parts in enumerate(inputs):
            at = 1
            for part, unit in zip(parts, self.offsets(parts), strict=True):
                assert part.unit_ends is not None, "words"
                last = unit + part.num_vectors
                unit_ends[row, unit:last], unit_ends[row, last] = (
                    at + part.unit_ends,
                    at + len(part.symbols) + 1,
                )
                at += len(part.symbols) + 1
        return arrays | {"unit_ends": unit_ends}


class NoTexts:
    """Inputs of a model of vectors, which reads no texts: every use raises a UserError."""

    def __init__(self, embedder: str) -> None:
        self._embedder = embedder

    def __getattr__(self, name: str) -> Any:
        raise UserError(
            f"model.embedder.name: {self._embedder} reads vectors, which texts have none of. Choose another embedder, "
            "or task.name: mirrored_summation."
        )


def text_inputs(model: ModelConfig, length: int, vocabulary: Vocabulary | None) -> TextInputs:
    """Return the converter of texts to inputs.

    Raises UserError if a model of subwords has no usable vocabulary.
    """
    inputs = _inputs_of_symbols(model, length, vocabulary)
    inputs.reads_ngrams = model.neighbours.name != "none"
    return inputs


def _inputs_of_symbols(model: ModelConfig, length: int, vocabulary: Vocabulary | None) -> TextInputs:
    if model.embedder.symbols == "vectors":
        return cast(TextInputs, NoTexts(model.embedder.name))
    if model.downsampler.bytes_per_word is not None:
        return WordInputs(model, length)
    if model.embedder.symbols == "characters":
        return CharacterInputs(model, length)
    if model.embedder.symbols == "bytes":
        return ByteInputs(model, length)
    if vocabulary is None:
        raise UserError(
            f"model.embedder.name: {model.embedder.name} reads subwords. Give the run with their vocabulary as "
            "--init-from, or a SentencePiece model as --vocabulary."
        )
    min_rows = vocabulary.size + NUM_SUBWORD_SPECIALS
    if model.embedder.size < min_rows:
        raise UserError(
            f"model.embedder.size: {model.embedder.size} rows are too few for the {vocabulary.size} subwords of the "
            f"vocabulary and CLS, SEP and MASK. Set it to {min_rows}."
        )
    return SubwordInputs(model, length, vocabulary)
