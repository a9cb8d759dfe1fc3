"""The text in which an answer is sought, as a model reads it: in vectors that know which bytes of it they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tokenfree.train.tasks.inputs.text_inputs import TextInputs, TextSymbols, joined, part_of
from tokenfree.train.tasks.question_answering.tydi_files import NO_SPAN, Span, TydiExample

QUESTION_MARKER = 0xE005  # before the question; private-use codepoints as in CANINE's code for TyDi QA
FIRST_PASSAGE_MARKER = 0xE006  # that of the passage with index 0
NOWHERE = -1
_SPACE = 0x20


class Passage(NamedTuple):
    """A part of the original that is read."""

    index: int
    begin: int  # the first byte
    text: bytes  # UTF-8


@dataclasses.dataclass(frozen=True, slots=True)
class Readable:
    """What is read, in vectors: of characters, subwords or words.

    Attributes:
        symbols: what the embedder reads, int64 [symbols].
        starts: the byte of the original at which each vector begins, int64 [vectors]; -1 for one that is not there,
            such as a marker.
        ends: the byte behind it; -1 likewise.
        passages: by the index of a passage, which of the vectors are its own.
        unit_ends: the symbols up to which each vector reaches, int64 [vectors]; None: each symbol has a vector.
    """

    symbols: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    passages: dict[int, range]
    unit_ends: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, vectors: range) -> TextSymbols:
        """Some vectors in a row."""
        return part_of(TextSymbols(self.symbols, self.starts[:0], self.unit_ends), vectors.start, vectors.stop)

    def find(self, span: Span, passage: int) -> range | None:
        """The vectors of a passage that stand for bytes of `span`; None where it is empty or not all in there."""
        among = self.passages.get(passage, range(0))
        starts, ends = (each[among.start : among.stop] for each in (self.starts, self.ends))
        begin, end = span
        inside = np.flatnonzero((starts != NOWHERE) & (starts < end) & (ends > begin))
        if begin >= end or not len(inside) or begin < starts[starts != NOWHERE].min() or end > ends.max():
            return None
        return range(among.start + int(inside[0]), among.start + int(inside[-1]) + 1)


def tydi_passages(example: TydiExample, most: int) -> list[Passage]:
    """The first `most` passages of an article, without those that are empty or whose place is not known."""
    return [
        Passage(index, begin, example.article[begin:end])
        for index, (begin, end) in enumerate(example.passages[:most])
        if (begin, end) != NO_SPAN and begin < end
    ]


def readable(passages: Iterable[Passage], inputs: TextInputs, *, markers: bool) -> Readable:
    """Passages one after another; with `markers`, joined with spaces, its marker and a space before each."""
    texts, starts, ends, ranges = list[TextSymbols](), list[np.ndarray](), list[np.ndarray](), dict[int, range]()
    length = 0
    for passage in passages:
        if markers:
            marker = [*([_SPACE] if texts else []), FIRST_PASSAGE_MARKER + passage.index, _SPACE]
            nowhere = np.full(len(marker), NOWHERE, dtype=np.int64)
            texts.append(TextSymbols(np.array(marker, dtype=np.int64), nowhere))
            starts.append(nowhere)
            ends.append(nowhere)
            length += len(marker)
        text = inputs.encode(passage.text.decode("utf-8", "surrogatepass"))
        texts.append(text)
        for found, places in zip((starts, ends), _places(text, passage), strict=True):
            found.append(places)
        ranges[passage.index] = range(length, length + text.num_vectors)
        length += text.num_vectors
    read = joined(texts)
    return Readable(read.symbols, _concatenated(starts), _concatenated(ends), ranges, read.unit_ends)


def _places(text: TextSymbols, passage: Passage) -> tuple[np.ndarray, np.ndarray]:
    """Where, in bytes of the original, each vector of a passage begins and ends; -1 for one of no character."""
    is_first = (np.frombuffer(passage.text, dtype=np.uint8) & 0xC0) != 0x80
    byte = np.append(np.flatnonzero(is_first), len(passage.text)) + passage.begin
    starts, ends = (np.full(text.num_vectors, NOWHERE, dtype=np.int64) for _ in range(2))
    seen = np.flatnonzero(text.vectors >= 0)
    ends[text.vectors[seen]] = byte[seen + 1]  # of several characters of a vector, the last is written last
    starts[text.vectors[seen[::-1]]] = byte[seen[::-1]]
    return starts, ends


def _concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])
