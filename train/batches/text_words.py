"""The words of a text as an encoder of words reads them: its bytes without special symbols, and which are whose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.text.characters import byte_offsets
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.model.embedders.word_bytes import MASK

NOWHERE = -1


class WordsOfText(NamedTuple):
    """The words of a text, without its characters that stand for special symbols and halves of surrogate pairs."""

    utf8: np.ndarray  # uint8 [bytes]
    starts: np.ndarray  # int64 [words]: the first byte of each
    ends: np.ndarray  # int64 [words]: the byte after the last
    word_of: np.ndarray  # int64 [characters]: the word of each character of the whole text, -1 where it is in none


def text_words(text: str) -> WordsOfText:
    """Find them."""
    codepoints = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kept = np.flatnonzero((codepoints > MASK) & ((codepoints < 0xD800) | (codepoints > 0xDFFF)))
    clean = codepoints[kept].tobytes().decode("utf-32-le")
    starts, ends = (span.astype(np.int64) for span in word_spans(clean))
    places = byte_offsets(codepoints[kept])[:-1]
    word = np.searchsorted(ends, places, side="right")
    inside = places >= np.append(starts, len(clean) * 4)[word]
    word_of = np.full(len(codepoints), NOWHERE)
    word_of[kept[inside]] = word[inside]
    return WordsOfText(np.frombuffer(clean.encode(), dtype=np.uint8), starts, ends, word_of)
