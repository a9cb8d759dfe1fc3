"""The words of a text as an encoder of words reads them: its bytes without special symbols, and which are whose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.text.characters import byte_offsets, classes_of
from tokenfree.preprocess.text.words import byte_spans, limit_bytes
from tokenfree.train.model.embedders.word_bytes import MASK

NOWHERE = -1


class WordsOfText(NamedTuple):
    """The words of a text, without its characters that stand for special symbols and halves of surrogate pairs."""

    utf8: np.ndarray  # uint8 [bytes]
    starts: np.ndarray  # int64 [words]: the first byte of each
    ends: np.ndarray  # int64 [words]: the byte after the last
    word_of: np.ndarray  # int64 [characters]: the word of each character of the whole text, -1 where it is in none


def text_words(text: str, before: str | None = None) -> WordsOfText:
    """Find them.

    Args:
        text: of which they are.
        before: the text as it was before the case of some of its characters changed: its words are found, so that
            "rAnDoM" stays one.
    """
    codepoints = _codepoints(text)
    kept = np.flatnonzero((codepoints > MASK) & ((codepoints < 0xD800) | (codepoints > 0xDFFF)))
    clean = codepoints[kept]
    offsets = byte_offsets(clean)
    starts, ends = _spans(clean if before is None else _codepoints(before)[kept], offsets)
    places = offsets[:-1]
    word = np.searchsorted(ends, places, side="right")
    inside = places >= np.append(starts, offsets[-1])[word]
    word_of = np.full(len(codepoints), NOWHERE)
    word_of[kept[inside]] = word[inside]
    utf8 = np.frombuffer(clean.tobytes().decode("utf-32-le").encode(), dtype=np.uint8)
    return WordsOfText(utf8, starts, ends, word_of)


def _spans(before: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words of codepoints as bytes of a text whose characters begin at `offsets`: other letters may have other
    lengths in UTF-8, and what is too long for a word then is cut again.
    """
    own = byte_offsets(before)
    starts, ends = (offsets[np.searchsorted(own, span)] for span in byte_spans(classes_of(before), own))
    return limit_bytes(starts, ends, offsets)


def _codepoints(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
