"""What tasks need to know of how a model reads texts, whatever its symbols are.

An input is [CLS] text [SEP], or [CLS] text [SEP] second [SEP] with the second text in segment 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tokenfree.train.batches.collator import Arrays

NOWHERE = -1
NUM_FRAME = 2  # CLS, and SEP after a single text


class TextSymbols(NamedTuple):
    """A text, or a part of one, as a model reads it."""

    symbols: np.ndarray  # int64 [n]: what the embedder reads
    vectors: np.ndarray  # int64 [characters]: which of the text's vectors stands for each character; -1: none
    unit_ends: np.ndarray | None = None  # int64 [vectors], where units are words: the symbols up to which each reaches

    @property
    def num_vectors(self) -> int:
        """How many vectors the text has; a vector for each symbol where units are not words."""
        return len(self.symbols) if self.unit_ends is None else len(self.unit_ends)


def window_vectors(seen: np.ndarray, start: int, end: int) -> np.ndarray:
    """The vectors of a text from `start` to before `end`, counted from `start`.

    Args:
        seen: the vectors of the characters that have one, ascending, int64 [characters].
    """
    return seen[np.searchsorted(seen, start) : np.searchsorted(seen, end)] - start


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

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """How many positions too few an input has for these texts; 0 where they fit."""
        ...

    def size(self, parts: Sequence[TextSymbols]) -> int:
        """The positions of an input of these texts, special ones included."""
        ...

    def cut(self, text: TextSymbols, stride: float) -> list[TextSymbols]:
        """The windows of a text, from left to right, that fit into an input each; the text itself where it fits.

        Each begins `stride` of a full window after the one before it, so that they overlap by the rest. A window has
        only the vectors of its own characters, so that its size does not depend on that of the text.
        """
        ...

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]]) -> Arrays:
        """`codepoints` int64 [b, length] and `mask` bool alike; `segments` int64 where there are second texts;
        `unit_ends` int64 [b, units] where units are words.
        """
        ...

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """The number, in the input, of the first vector of each text."""
        ...
