"""How a model reads texts in tasks: characters, subwords, bytes or words of bytes.

An input is [CLS] text [SEP], or [CLS] text [SEP] second [SEP] with the second text in segment 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.features.vocabulary import MAX_TEXT_CHARACTERS, Vocabulary
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
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.characters import ragged_range
from tokenfree.train.batches.padding import Padding, round_up
from tokenfree.train.batches.words import room_for_words, text_words
from tokenfree.train.model.encoder import ModelConfig


class NoTexts:
    """See `tokenfree.train.tasks.inputs.TextInputs`, of which it refuses everything.

    Args:
        embedder: the name of the model's.
        length: the most positions of an input.
    """

    symbols = "vectors"

    def __init__(self, embedder: str, length: int) -> None:
        self._embedder, self.length = embedder, length

    def _refuse(self, *given: object, **named: object) -> Any:
        raise UserError(
            f"model.embedder.name: {self._embedder} reads vectors, which texts have none of; choose another embedder, "
            "or task.name: mirrored_summation"
        )

    encode = chunks = missing = size = fitting = arrays = offsets = _refuse


NOWHERE = -1
_NOTHING = np.zeros(0, dtype=np.int64)
NUM_FRAME = 2  # CLS, and SEP after a single text


class TextSymbols(NamedTuple):
    """A text, or a part of one, as a model reads it."""

    symbols: np.ndarray  # integers [n]: what the embedder reads
    vectors: np.ndarray  # int64 [characters]: which of the text's vectors stands for each character; -1: none
    unit_ends: np.ndarray | None = None  # int64 [vectors], where units are words: the symbols up to which each reaches

    @property
    def num_vectors(self) -> int:
        """How many vectors the text has; a vector for each symbol where units are not words."""
        return len(self.symbols) if self.unit_ends is None else len(self.unit_ends)


def joined(texts: Iterable[TextSymbols]) -> TextSymbols:
    """Return consecutive parts of a text as one."""
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


def measured(texts: Iterable[TextSymbols]) -> TextSymbols:
    """Return a text of zeros as long as these consecutive parts together, which takes no memory."""
    num_symbols = num_vectors = 0
    has_units = False
    for part in texts:
        num_symbols += len(part.symbols)
        num_vectors += part.num_vectors
        has_units |= part.unit_ends is not None
    zero = np.int64(0)
    units = np.broadcast_to(zero, num_vectors) if has_units else None
    return TextSymbols(np.broadcast_to(zero, num_symbols), _NOTHING, units)


def part_of(text: TextSymbols, begin: int, end: int) -> TextSymbols:
    """Return the vectors `begin` to `end` of a text, and the characters from the first to the last that has one."""
    first, last, unit_ends = begin, end, None
    if text.unit_ends is not None:
        first, last = (int(text.unit_ends[at - 1]) if at else 0 for at in (begin, end))
        unit_ends = text.unit_ends[begin:end] - first
    inside = np.flatnonzero((text.vectors >= begin) & (text.vectors < end))
    vectors = text.vectors[inside[0] : inside[-1] + 1] - begin if len(inside) else text.vectors[:0]
    outside = (vectors < 0) | (vectors >= end - begin)
    return TextSymbols(text.symbols[first:last], np.where(outside, NOWHERE, vectors), unit_ends)


def compact(text: TextSymbols) -> TextSymbols:
    """Return the symbols of a text in as few bytes as hold them, without the vectors of its characters."""
    symbols = text.symbols.astype(np.min_scalar_type(text.symbols.max(initial=0)))
    unit_ends = None if text.unit_ends is None else text.unit_ends.astype(np.int32)
    return TextSymbols(symbols, _NOTHING, unit_ends)


class TextInputs(Protocol):
    """Texts to arrays for one model."""

    @property
    def symbols(self) -> str:
        """What they are called in messages, such as "characters"."""
        ...

    @property
    def length(self) -> int:
        """The most positions of an input, as the recipe has it."""
        ...

    def encode(self, text: str, before: str | None = None) -> TextSymbols:
        """A text as the model reads it, of any length.

        Args:
            text: to be read.
            before: the text as it was before its case changed, whose words a model of words is to read; others are
                given none.
        """
        ...

    def chunks(self, text: str, before: str | None = None) -> Iterator[TextSymbols]:
        """`encode` in consecutive parts, none of which is large; at least one."""
        ...

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """How many positions too few an input has for these texts; 0 where they fit."""
        ...

    def size(self, parts: Sequence[TextSymbols]) -> int:
        """The positions of an input of these texts, special ones included."""
        ...

    def fitting(self, text: TextSymbols) -> int:
        """How many vectors of a text, from its first, fit into an input."""
        ...

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]]) -> Arrays:
        """`codepoints` int64 [b, length] and `mask` bool alike; `segments` int64 where there are second texts;
        `unit_ends` int64 [b, units] where units are words.
        """
        ...

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """The number, in the input, of the first vector of each text."""
        ...


def cut(inputs: TextInputs, text: str, before: str | None, stride: float) -> Iterator[TextSymbols]:
    """Yield the windows of a text, from left to right, that fit into an input each; the text itself where it fits.

    Each begins `stride` of a full window after the one before it, so that they overlap by the rest. No more of the text
    is encoded than the next window needs.
    """
    chunks = inputs.chunks(text, before)
    read = next(chunks)
    while True:
        while not inputs.missing([read]) and (chunk := next(chunks, None)) is not None:
            read = joined([read, chunk])
        count = inputs.fitting(read)
        yield part_of(read, 0, count)
        if count == read.num_vectors:
            return
        read = part_of(read, max(1, int(count * stride)), read.num_vectors)


_BUCKET = 8  # lengths of batches are multiples of this
_REPLACEMENT = 0xFFFD


class SymbolInputs:
    """See `tokenfree.train.tasks.inputs.TextInputs`; a subclass says what symbols are.

    Args:
        model: that reads them.
        length: the most positions of an input.
        cls, sep: the special symbols.

    Raises:
        UserError: no text fits into `length`.
    """

    symbols = "symbols"
    chunk = 4096  # characters that are encoded at once

    def __init__(self, model: ModelConfig, length: int, *, cls: int, sep: int) -> None:
        self.length = length
        self._padding = Padding(model, length, bucket=_BUCKET)
        self._room = self._padding.length - self._padding.spare
        self._cls, self._sep = cls, sep
        if self._room <= NUM_FRAME:
            raise UserError(
                f"train.length: {length} positions leave none for text; make it at least "
                f"{NUM_FRAME + self._padding.spare + 1}"
            )

    def encode(self, text: str, before: str | None = None) -> TextSymbols:
        """See `TextInputs.encode`."""
        return joined(self.chunks(text, before))

    def chunks(self, text: str, before: str | None = None) -> Iterator[TextSymbols]:
        """See `TextInputs.chunks`."""
        for start in range(0, max(1, len(text)), self.chunk):
            yield self.encode_chunk(text[start : start + self.chunk])

    def encode_chunk(self, text: str) -> TextSymbols:
        """At most `chunk` characters as the model reads them."""
        raise NotImplementedError

    def size(self, parts: Sequence[TextSymbols]) -> int:
        """See `TextInputs.size`."""
        return 1 + sum(len(part.symbols) + 1 for part in parts)

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """See `TextInputs.missing`."""
        return max(0, self.size(parts) - self._room)

    def fitting(self, text: TextSymbols) -> int:
        """See `TextInputs.fitting`."""
        return min(len(text.symbols), self._room - NUM_FRAME)

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]]) -> Arrays:
        """See `TextInputs.arrays`."""
        sizes = np.array([self.size(parts) for parts in inputs])
        length = self._padding.padded(sizes.tolist())
        codepoints, segments = (np.zeros((len(inputs), length), dtype=np.int64) for _ in range(2))
        codepoints[:, 0] = self._cls
        for row, parts in enumerate(inputs):
            for number, (part, offset) in enumerate(zip(parts, self.offsets(parts), strict=True)):
                end = offset + len(part.symbols)
                codepoints[row, offset:end] = part.symbols
                codepoints[row, end] = self._sep
                segments[row, offset : end + 1] = number
        arrays = {"codepoints": codepoints, "mask": np.arange(length) < sizes[:, None]}
        return arrays | ({"segments": segments} if len(inputs[0]) > 1 else {})

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """See `TextInputs.offsets`."""
        sizes = np.array([len(part.symbols) + 1 for part in parts])
        return (1 + np.cumsum(sizes) - sizes).tolist()


class CharacterInputs(SymbolInputs):
    """Inputs of characters as they are; what stands for special symbols becomes U+FFFD."""

    symbols = "characters"

    def __init__(self, model: ModelConfig, length: int) -> None:
        super().__init__(model, length, cls=CLS, sep=SEP)

    def encode_chunk(self, text: str) -> TextSymbols:
        """A vector for each character."""
        codepoints = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").copy()
        codepoints[np.isin(codepoints, RESERVED)] = _REPLACEMENT
        return TextSymbols(codepoints, np.arange(len(codepoints)))


class SubwordInputs(SymbolInputs):
    """Inputs of the ids of subwords; CLS, SEP and MASK come behind those of the vocabulary."""

    symbols = "subwords"
    chunk = MAX_TEXT_CHARACTERS

    def __init__(self, model: ModelConfig, length: int, vocabulary: Vocabulary) -> None:
        specials = of_subwords(vocabulary.size)
        super().__init__(model, length, cls=specials.cls, sep=specials.sep)
        self._vocabulary = vocabulary

    def encode_chunk(self, text: str) -> TextSymbols:
        """A vector for each subword; white space has none."""
        (encoding,) = self._vocabulary.encode_batch([_clean(text)])
        vectors = np.full(len(text), NOWHERE)
        spans = zip(encoding.starts.tolist(), encoding.ends.tolist(), strict=True)
        for place, (start, end) in reversed(list(enumerate(spans))):  # the first of those of a character
            vectors[start:end] = place
        return TextSymbols(encoding.ids, vectors)


def _clean(text: str) -> str:
    """The text without lone surrogates, which SentencePiece does not take, at the same length."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if not _is_valid(text) else text


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class ByteInputs(SymbolInputs):
    """Inputs of bytes; what stands for special symbols, U+0000 to U+0004, becomes UNK."""

    symbols = "bytes"

    def __init__(self, model: ModelConfig, length: int) -> None:
        super().__init__(model, length, cls=BYTE_CLS, sep=BYTE_SEP)

    def encode_chunk(self, text: str) -> TextSymbols:
        """A vector for each byte; that of a character is the one of its first byte."""
        encoded = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        is_first = (encoded & 0xC0) != 0x80
        return TextSymbols(np.where(encoded <= BYTE_MASK, BYTE_UNK, encoded), np.flatnonzero(is_first))


_CHUNK = 4096  # characters that are encoded at once


class WordInputs:
    """See `tokenfree.train.tasks.inputs.TextInputs`.

    Args:
        model: whose downsampler takes words of the text.
        length: the most bytes of an input.
    """

    symbols = "words and bytes"

    def __init__(self, model: ModelConfig, length: int) -> None:
        self.length = length
        self._num_words, self._num_bytes = room_for_words(length, model.downsampler.bytes_per_word)

    def encode(self, text: str, before: str | None = None) -> TextSymbols:
        """A vector for each word; white space and what stands for special symbols have none.

        Args:
            text: to be read.
            before: see `text_words`.
        """
        return joined(self.chunks(text, before))

    def chunks(self, text: str, before: str | None = None) -> Iterator[TextSymbols]:
        """See `TextInputs.chunks`; a word that may go on is left to the next one."""
        stop = 0
        while True:
            start, stop = stop, min(len(text), stop + _CHUNK)
            utf8, starts, ends, vectors = text_words(text[start:stop], before and before[start:stop])
            if stop < len(text) and len(starts) > 1 and not text[stop - 1].isspace():
                starts, ends = starts[:-1], ends[:-1]
                vectors = vectors[: int(np.argmax(vectors == len(starts)))]
                stop = start + len(vectors)
            sizes = ends - starts
            yield TextSymbols(utf8[ragged_range(starts, sizes)], vectors, np.cumsum(sizes))
            if stop == len(text):
                return

    def size(self, parts: Sequence[TextSymbols]) -> int:
        """Bytes; they stand for the words too."""
        return 1 + sum(len(part.symbols) + 1 for part in parts)

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """See `TextInputs.missing`."""
        words = sum(part.num_vectors + 1 for part in parts) + 1 - NUM_FRAME
        return max(0, self.size(parts) - NUM_FRAME - self._num_bytes, words - self._num_words)

    def fitting(self, text: TextSymbols) -> int:
        """See `TextInputs.fitting`; windows begin and end with whole words."""
        ends = text.unit_ends
        assert ends is not None, "words"
        return min(self._num_words, int(np.searchsorted(ends, self._num_bytes, side="right")))

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]]) -> Arrays:
        """See `TextInputs.arrays`."""
        most = max(sum(part.num_vectors + 1 for part in parts) + 1 for parts in inputs)
        num_units = min(round_up(most, _BUCKET // 4), self._num_words + NUM_FRAME)
        sizes = np.array([self.size(parts) for parts in inputs])
        length = round_up(int(sizes.max()), _BUCKET)
        codepoints, segments = (np.zeros((len(inputs), length), dtype=np.int64) for _ in range(2))
        unit_ends = np.repeat(sizes[:, None], num_units, axis=1)
        codepoints[:, 0], unit_ends[:, 0] = BYTE_CLS, 1
        for row, parts in enumerate(inputs):
            at = unit = 1
            for number, part in enumerate(parts):
                assert part.unit_ends is not None, "words"
                end, last = at + len(part.symbols), unit + part.num_vectors
                codepoints[row, at:end], codepoints[row, end] = part.symbols, BYTE_SEP
                segments[row, at : end + 1] = number
                unit_ends[row, unit:last], unit_ends[row, last] = at + part.unit_ends, end + 1
                at, unit = end + 1, last + 1
        arrays = {"codepoints": codepoints, "mask": np.arange(length) < sizes[:, None], "unit_ends": unit_ends}
        return arrays | ({"segments": segments} if len(inputs[0]) > 1 else {})

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """See `TextInputs.offsets`."""
        counts = np.array([part.num_vectors + 1 for part in parts])
        return (1 + np.cumsum(counts) - counts).tolist()


def text_inputs(model: ModelConfig, length: int, vocabulary: Vocabulary | None) -> TextInputs:
    """How texts become inputs of at most `length` positions of a model.

    Args:
        vocabulary: of subwords, for models that read them.

    Raises:
        UserError: the model reads subwords of no vocabulary or of a larger one, or no text fits into `length`.
    """
    if model.embedder.symbols == "vectors":
        return NoTexts(model.embedder.name, length)
    if model.downsampler.bytes_per_word is not None:
        return WordInputs(model, length)
    if model.embedder.symbols == "characters":
        return CharacterInputs(model, length)
    if model.embedder.symbols == "bytes":
        return ByteInputs(model, length)
    if vocabulary is None:
        raise UserError(
            f"model.embedder.name: {model.embedder.name} reads subwords; give the run whose vocabulary they are of as "
            "--init-from, or a SentencePiece model as --vocabulary"
        )
    if model.embedder.size < vocabulary.size + NUM_SUBWORD_SPECIALS:
        raise UserError(
            f"model.embedder.size: {model.embedder.size} rows are too few for the {vocabulary.size} subwords of the "
            f"vocabulary and CLS, SEP and MASK; set it to {vocabulary.size + NUM_SUBWORD_SPECIALS}"
        )
    return SubwordInputs(model, length, vocabulary)
