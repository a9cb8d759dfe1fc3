"""The subwords of a vocabulary as targets, and as random replacements for each other."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.characters import codepoints_of, scripts_of
from tokenfree.train.batches.base import Arrays, Rows, Symbols

SPACE = "\u2581"  # SentencePiece's mark of a space: at the front of a piece that begins a word
_NO_SUBWORD = re.compile(r"<0x[0-9A-F]{2}>|<unk>|<s>|</s>|<pad>|" + SPACE + "*")


def predictable(pieces: Sequence[str]) -> np.ndarray:
    """Return which pieces can be targets, bool [size]: not <unk>, control pieces, spaces or byte-fallback pieces."""
    return np.array([not _NO_SUBWORD.fullmatch(piece) for piece in pieces], dtype=bool)


def needed_pieces(objective: str, vocabulary: Vocabulary | None) -> list[str]:
    """Return the pieces of the data's vocabulary by id. Raises UserError if the data has none."""
    if vocabulary is None:
        raise UserError(
            f"objective.name: {objective} predicts subwords, and the data has no vocabulary; preprocess with the "
            "subword columns, or choose another objective"
        )
    return vocabulary.pieces


def subword_symbols(vocabulary: Vocabulary, *, as_characters: bool) -> Symbols:
    """Return the subwords of a vocabulary as targets: the `predictable` ones, by their ids.

    If the input shows each as its characters (`as_characters`), the clue of a hidden subword is its number of
    characters and whether it begins a word.
    """
    pieces = vocabulary.pieces
    sizes = np.array([len(visible(piece)) for piece in pieces], dtype=np.int64)
    clue_of = (2 * sizes + _begins_word(pieces)) * as_characters  # int64 [size]

    def read(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        ids = np.concatenate(rows["subword_ids"]).astype(np.int64)
        return ids, clue_of[ids]

    clue = "its number of characters and whether it begins a word" if as_characters else None
    clues, letters = _of_targets(clue_of), _of_targets(letters_of(pieces))
    return Symbols("subword", ("subword_ids",), predictable(pieces), read, clue, clues, letters)


def letters_of(pieces: Sequence[str]) -> np.ndarray:
    """Return the first character of each piece that belongs to a script, else its first character: int64 [size]."""
    texts = [visible(piece) for piece in pieces]
    codepoints = codepoints_of("".join(texts)).astype(np.int64)
    of = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    lettered = scripts_of(codepoints) != ""
    letters = np.zeros(len(texts), dtype=np.int64)
    # The first one of a piece is written last, and letters after others.
    for chosen in (~lettered, lettered):
        letters[of[chosen][::-1]] = codepoints[chosen][::-1]
    return letters


def _of_targets(table: np.ndarray) -> Callable[[Arrays], np.ndarray]:
    return lambda arrays: table[arrays["target_ids"]]


def visible(piece: str) -> str:
    return piece.strip(SPACE).replace(SPACE, " ")


def _begins_word(pieces: Sequence[str]) -> np.ndarray:
    return np.array([piece.startswith(SPACE) for piece in pieces], dtype=np.int64)


EDGE, HIDDEN = -1, -2  # in place of a neighbour: the text begins or ends there; it is hidden


def neighbours_of(ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the subwords before and after each of those of windows with `counts`, int64; EDGE at the ends."""
    left, right = np.append(EDGE, ids)[:-1], np.append(ids, EDGE)[1:]
    ends = np.cumsum(counts)
    left[(ends - counts)[counts > 0]] = EDGE
    right[ends[counts > 0] - 1] = EDGE
    return left, right


class Pool:
    """The visible characters of all subwords, and the subwords by length and by whether they begin a word.

    `characters`, int64 [sum], holds the codepoints of all subwords one after another, without the mark of a
    space. Those of a subword begin at `first`, int64 [size]. `usable`, bool [size], is `predictable`.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        texts = [visible(piece) for piece in pieces]
        size = np.array([len(text) for text in texts])
        self.characters = np.array([ord(c) for text in texts for c in text], dtype=np.int64)
        self.first = np.cumsum(size) - size
        self.usable = predictable(pieces)
        self._begins = _begins_word(pieces)
        # 0 and 1 mean no characters; these are never drawn.
        kind = np.where(self.usable, 2 * size + self._begins, 0)
        self._by_kind = np.argsort(kind, kind="stable")
        self._num = np.bincount(kind, minlength=2)
        self._start = np.cumsum(self._num) - self._num
        self._num[:2] = 0

    def draw(self, gold: np.ndarray, size: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """Return random subwords of `size` characters that begin a word if and only if `gold` does.

        `choice` in [0, 1) selects one uniformly. The result is -1 if there is none: a vocabulary may fold
        characters, so that a piece is not spelled as in the text.
        """
        kind = 2 * size + self._begins[gold]
        kind = np.where(kind < len(self._num), kind, 0)
        drawn = self._start[kind] + (choice * self._num[kind]).astype(np.int64)
        return np.where(self._num[kind] > 0, self._by_kind[np.minimum(drawn, len(self._by_kind) - 1)], -1)
