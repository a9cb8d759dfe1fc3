"""What tasks need to know of how a model reads texts, whatever its symbols are.

An input is [CLS] text [SEP], or [CLS] text [SEP] second [SEP] with the second text in segment 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tokenfree.train.batches.collator import Arrays

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
