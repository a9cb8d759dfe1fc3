"""The vectors of the texts of one shard: each text whole, its words, or its characters.

D width, n vectors of a text: 1, its words, or its characters
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches.text_words import NOWHERE, text_words
from tokenfree.train.embeddings.parts import Part, VectorsOf
from tokenfree.train.embeddings.windows import spans
from tokenfree.train.inference.text_encoder import Encoded, TextEncoder

Pooling = Literal["mean", "cls", "cls_max", "pooled"]
_POSITIONS = 8192  # of a batch, as many as its longest window has in each
_MOST_WINDOWS = 64  # of a batch


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which vectors are wanted.

    Attributes:
        vectors: of what.
        pooling: of texts, which one; see `tokenfree.train.inference.text_encoder.Encoded`.
        windowed: whether texts longer than the model reads are cut into windows; else they are refused.
    """

    vectors: VectorsOf = "texts"
    pooling: Pooling = "mean"
    windowed: bool = True


class TextVectors(NamedTuple):
    """What was found of a text."""

    vectors_ND: np.ndarray  # float32
    starts_N: np.ndarray  # int64: the first character of each, as a codepoint offset
    ends_N: np.ndarray  # int64: the character after the last
    num_windows: int  # in which the text was read


class _Window(NamedTuple):
    text: int  # number in the part
    start: int
    end: int


def width_of(encoder: TextEncoder, wanted: Wanted) -> int:
    """D.

    Raises:
        UserError: the encoder reads no texts, or did not train what is wanted.
    """
    found = encoder(["a"])
    if wanted.vectors == "texts" and wanted.pooling == "pooled" and not found.pooled_is_trained:
        raise UserError("--pooling pooled: this run did not train that layer, a random projection; take mean or cls")
    return _of_window(found, 0, "a", wanted)[0].shape[1]


def text_vectors(encoder: TextEncoder, part: Part, wanted: Wanted) -> list[TextVectors]:
    """The vectors of each text of a part of the corpus.

    Which windows are encoded together follows from the part alone: they go by length, and as many make a batch as fit.

    Raises:
        UserError: a text is longer than the model reads, where that is refused.
    """
    windows = list(_windows(encoder, part, wanted))
    found: dict[_Window, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    for batch in _batches(windows):
        texts = [part.texts[window.text][window.start : window.end] for window in batch]
        encoded = encoder(texts)
        for row, (window, text) in enumerate(zip(batch, texts, strict=True)):
            vectors, starts, ends = _of_window(encoded, row, text, wanted)
            found[window] = vectors, starts + window.start, ends + window.start
    of_text: list[list[_Window]] = [[] for _ in part.texts]
    for window in windows:
        of_text[window.text].append(window)
    return [_joined([found[window] for window in own], wanted) for own in of_text]


def _windows(encoder: TextEncoder, part: Part, wanted: Wanted) -> Iterator[_Window]:
    most = encoder.max_characters
    for number, text in enumerate(part.texts):
        if len(text) > most and not wanted.windowed:
            raise UserError(
                f"text {part.first + number + 1} has {len(text):,} characters and this model reads {most:,}; cut it, "
                "or leave out --long refuse: it is then read in windows"
            )
        yield from (_Window(number, start, end) for start, end in spans(text, most))


def _batches(windows: Sequence[_Window]) -> Iterator[list[_Window]]:
    """Windows of about the same length together, the longest first."""
    batch: list[_Window] = []
    for window in sorted(windows, key=lambda window: (window.start - window.end, window)):
        if batch:
            positions = (len(batch) + 1) * (batch[0].end - batch[0].start + 2)
            if len(batch) == _MOST_WINDOWS or positions > _POSITIONS:
                yield batch
                batch = []
        batch.append(window)
    if batch:
        yield batch


def _of_window(encoded: Encoded, row: int, text: str, wanted: Wanted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The vectors of one row of a batch, with the first character of each and the one after its last."""
    if wanted.vectors == "texts":
        pooled = getattr(encoded, wanted.pooling)[row : row + 1].float().cpu().numpy()
        return pooled, np.zeros(1, np.int64), np.array([len(text)])
    characters = encoded.characters[row, 1 : 1 + len(text)].float().cpu().numpy()
    if wanted.vectors == "characters":
        return characters, np.arange(len(text)), np.arange(1, len(text) + 1)
    starts, ends = _words(text)
    if encoded.words is not None:
        return encoded.words[row, 1 : 1 + len(starts)].float().cpu().numpy(), starts, ends
    means = [characters[start:end].mean(axis=0) for start, end in zip(starts, ends, strict=True)]
    return np.array(means, np.float32).reshape(-1, characters.shape[1]), starts, ends


def _words(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The first character of each word, and the one after its last, int64; see `text_words`."""
    word_of = text_words(text).word_of
    inside = np.flatnonzero(word_of != NOWHERE)
    names, first = np.unique(word_of[inside], return_index=True)
    last = np.searchsorted(word_of[inside], names, side="right") - 1
    return inside[first], inside[last] + 1


def _joined(windows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], wanted: Wanted) -> TextVectors:
    """Those of the windows of a text one after another; of the text as a whole their mean by characters."""
    vectors, starts, ends = (np.concatenate(part) for part in zip(*windows, strict=True))
    if wanted.vectors == "texts" and len(windows) > 1:
        share = ((ends - starts) / (ends - starts).sum()).astype(np.float32)
        vectors, starts, ends = (vectors * share[:, None]).sum(axis=0, keepdims=True), starts[:1], ends[-1:]
    return TextVectors(vectors, starts, ends, len(windows))
