"""The subwords of a vocabulary as targets and as random replacements of each other."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches.collator import Pieces, Rows, Symbols

_SPACE = "\u2581"  # SentencePiece's mark of a space: at the front of a piece that begins a word
_NO_SUBWORD = re.compile(r"<0x[0-9A-F]{2}>|<unk>|<s>|</s>|<pad>|" + _SPACE + "*")


def predictable(pieces: Sequence[str]) -> np.ndarray:
    """bool [size]: false for byte-fallback pieces (several share one character), <unk>, control pieces and spaces."""
    return np.array([not _NO_SUBWORD.fullmatch(piece) for piece in pieces], dtype=bool)


def needed_pieces(objective: str, vocabulary: Pieces | None) -> list[str]:
    """The pieces of the data's vocabulary, in the order of their ids.

    Raises:
        UserError: the data have none.
    """
    if vocabulary is None:
        raise UserError(
            f"objective.name: {objective} predicts subwords, and the data has no vocabulary; preprocess with the "
            "subword columns, or choose another objective"
        )
    return vocabulary.pieces()


def subword_symbols(vocabulary: Pieces) -> Symbols:
    """The subwords of a vocabulary as targets: those that `predictable` tells, by their ids."""
    return Symbols("subword", ("subword_ids",), predictable(vocabulary.pieces()), _subword_ids)


def _subword_ids(rows: Rows) -> np.ndarray:
    return np.concatenate(rows["subword_ids"])


class Pool:
    """The visible characters of all subwords, and the subwords by length and by whether they begin a word.

    `characters`, int64 [sum], are the codepoints of all subwords one after another, without the mark of a space; those
    of a subword begin at `first`, int64 [size]; `usable`, bool [size], is `predictable`.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        visible = [piece.strip(_SPACE).replace(_SPACE, " ") for piece in pieces]
        size = np.array([len(text) for text in visible])
        self.characters = np.array([ord(c) for text in visible for c in text], dtype=np.int64)
        self.first = np.cumsum(size) - size
        self.usable = predictable(pieces)
        self._begins = np.array([piece.startswith(_SPACE) for piece in pieces], dtype=np.int64)
        kind = np.where(self.usable, 2 * size + self._begins, 0)  # 0 and 1 are no length: nothing is drawn from there
        self._by_kind = np.argsort(kind, kind="stable")
        self._num = np.bincount(kind, minlength=2)
        self._start = np.cumsum(self._num) - self._num
        self._num[:2] = 0

    def draw(self, gold: np.ndarray, size: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """Subwords of `size` characters that begin a word or not as `gold` does, uniformly by `choice` in [0, 1).

        Args:
            gold, size: int64 [n].
            choice: float64 [n].

        Returns:
            int64 [n]; -1 where there is none: a vocabulary may fold characters, so that its piece is not the text's.
        """
        kind = 2 * size + self._begins[gold]
        kind = np.where(kind < len(self._num), kind, 0)
        drawn = self._start[kind] + (choice * self._num[kind]).astype(np.int64)
        return np.where(self._num[kind] > 0, self._by_kind[np.minimum(drawn, len(self._by_kind) - 1)], -1)
