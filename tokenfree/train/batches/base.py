"""Collators, which turn rows of shards into arrays of fixed shapes, and the random selection of targets.

Targets are characters, or the subwords of a vocabulary, which can also replace each other at random.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.characters import SPACE, classes_of, codepoints_of, scripts_of
from tokenfree.preprocess.text.specials import CLS, SEP
from tokenfree.train.batches import counter_random as random

Rows = Mapping[str, Sequence[np.ndarray]]  # column -> one array per row, as in the shards


Arrays = dict[str, np.ndarray]


class Symbols(NamedTuple):
    """The symbols that can be targets, and the clue that the input gives about a hidden one without any context."""

    name: str  # singular noun
    columns: tuple[str, ...]  # columns that `read` needs
    usable: np.ndarray  # bool [size]: the symbol may be a target
    read: Callable[[Rows], tuple[np.ndarray, np.ndarray]]  # symbols of rows and their clues, int64 [any] each
    clue: str | None  # description of a clue; None if the input gives none
    # Clues of a batch's targets, int64 [b, P]; their symbols are `target_ids`.
    clues: Callable[[Arrays], np.ndarray]
    # One codepoint of each target, int64 [b, P]: a letter if it has any.
    codepoints: Callable[[Arrays], np.ndarray]


class Collator(ABC):
    """A function from rows to a batch.

    The batch depends only on the rows, their sample ids and the collator's seed.
    """

    columns: tuple[str, ...]  # shard columns that `rows` must have
    length: int  # number of positions of an input

    @abstractmethod
    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        """Return the arrays of a batch; their first axis is the row. `sample_ids` is int64 [b].

        Masks are bool, and other arrays are int64. Unused places are 0.

        - `codepoints`, `mask` [b, length]: the input, and which positions are not padding.
        - `num_characters` [b]: number of characters of text in the input.
        - `target_ids`, `target_mask` [b, P]: the symbols to predict, and which places hold one.
        - `target_positions` [b, P]: the positions of the targets in the input.
        - `target_kinds` [b, P]: whether the input hides the targets (`MASKED`, `REPLACED` or `KEPT`).
        """


def laid_out(values: np.ndarray, rows: np.ndarray, places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    scattered = np.zeros((*shape, *values.shape[1:]), dtype=np.int64)
    scattered[rows, places] = values
    return scattered


# Fits an item's number in its window, which has at most 16,383 characters.
_INDEX_BITS = np.uint64(16)
_INDEX = np.uint64(0xFFFF)
_NEVER = np.uint64(2**64 - 1)
_MASKED, _REPLACED = 0.8, 0.1


class Selection(NamedTuple):
    """The items selected in each of b rows, in the order in which they were drawn."""

    mask: np.ndarray  # bool [b, most]: the place holds an item; these are the first places of each row
    rows: np.ndarray  # int64 [n]: row of each item
    places: np.ndarray  # int64 [n]: place of each item in its row of `mask`
    items: np.ndarray  # int64 [n]: the items, numbered through all rows
    seed: int
    sample_ids: np.ndarray  # int64 [b]

    def only(self, kept: np.ndarray) -> "Selection":
        return self._replace(rows=self.rows[kept], places=self.places[kept], items=self.items[kept])

    def uniform(self, purpose: str) -> np.ndarray:
        """Return a number in [0, 1) for each item, float64 [n]."""
        count = int(self.places.max(initial=0)) + 1
        return random.uniform(self.seed, purpose, self.sample_ids, count)[self.rows, self.places]

    def masked_and_replaced(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which items are masked (80%) and which are replaced (10%), bool [n] each (Devlin et al. 2019)."""
        action = self.uniform("action")
        return action < _MASKED, (action >= _MASKED) & (action < _MASKED + _REPLACED)

    def laid_out(self, values: np.ndarray) -> np.ndarray:
        return laid_out(values, self.rows, self.places, self.mask.shape)

    def targets(self, positions: np.ndarray, ids: np.ndarray, kinds: np.ndarray) -> Arrays:
        """Return the `target_...` arrays of a batch from values of the items, int64 [n] each."""
        return {
            "target_positions": self.laid_out(positions),
            "target_ids": self.laid_out(ids),
            "target_mask": self.mask,
            "target_kinds": self.laid_out(kinds),
        }


def select(
    counts: np.ndarray,
    usable: np.ndarray,
    *,
    fraction: float,
    max_selected: int,
    seed: int,
    sample_ids: np.ndarray,
) -> Selection:
    """Select `fraction` of each row's usable items without replacement, at least one, at most `max_selected`.

    `counts`, int64 [b], is the number of items of each row. `usable`, bool [counts.sum()], covers the items
    of all rows.
    """
    of = np.repeat(np.arange(len(counts)), counts)
    row_starts = np.cumsum(counts) - counts
    available = np.bincount(of[usable], minlength=len(counts))
    num_selected = np.maximum(np.floor(fraction * available + 0.5), 1)
    num_selected = np.minimum(np.minimum(num_selected, available), max_selected).astype(np.int64)
    # The key of an item is 48 random bits above the item's number, and the smallest keys are selected.
    # NumPy's partition of such integers is vectorised, and the low bits of a key identify its item.
    numbers = np.arange(max(int(counts.max(initial=0)), 1))
    keys = random.bits(seed, "selection", sample_ids, len(numbers)) << _INDEX_BITS | numbers.astype(np.uint64)
    chosen = np.zeros(keys.shape, dtype=bool)
    chosen[numbers < counts[:, None]] = usable
    keys[~chosen] = _NEVER
    deepest = max(int(num_selected.max(initial=1)), 1)
    smallest_keys = np.sort(np.partition(keys, deepest - 1, axis=1)[:, :deepest], axis=1)
    mask = np.arange(max_selected) < num_selected[:, None]
    rows, places = np.nonzero(mask)
    items = row_starts[rows] + (smallest_keys[rows, places] & _INDEX).astype(np.int64)
    return Selection(mask, rows, places, items, seed, sample_ids)


def draw_unselected(
    counts: np.ndarray, selected: np.ndarray, rows: np.ndarray, choice: np.ndarray
) -> np.ndarray:
    """Return an item that is not selected from each of `rows`, uniformly by `choice` in [0, 1); -1 if there is none.

    If replacements were drawn from all items, some would reveal an item that is masked and must be predicted.
    """
    is_free = np.ones(int(counts.sum()), dtype=bool)
    is_free[selected] = False
    free = np.append(np.flatnonzero(is_free), -1)
    num_free = np.bincount(np.repeat(np.arange(len(counts)), counts)[is_free], minlength=len(counts))
    first = np.cumsum(num_free) - num_free
    return np.where(num_free[rows] > 0, free[first[rows] + (choice * num_free[rows]).astype(np.int64)], -1)


def in_random_order(mask: np.ndarray, purpose: str, *, seed: int, sample_ids: np.ndarray) -> np.ndarray:
    """Return a permutation of the places of each row of `mask`, int64 [b, most].

    The first n places of a row of `mask` (bool [b, most]) are true. These come first, in random order.
    """
    numbers = np.arange(mask.shape[1], dtype=np.uint64)
    keys = random.bits(seed, purpose, sample_ids, mask.shape[1]) << _INDEX_BITS | numbers
    keys[~mask] = _NEVER - _INDEX
    keys[~mask] |= np.broadcast_to(numbers, mask.shape)[~mask]
    keys.sort(axis=1)
    return (keys & _INDEX).astype(np.int64)


MASKED, REPLACED, KEPT = range(3)  # values of `target_kinds`


def target_kinds(masked: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return the kind of each target, int64: MASKED where `masked` (bool), else KEPT where `kept`, else REPLACED."""
    return np.where(masked, MASKED, np.where(kept, KEPT, REPLACED)).astype(np.int64)


def character_capacity(length: int, spare: int) -> int:
    """Return the number of characters that fit between CLS and SEP. Raises UserError if none does."""
    if length - 2 - spare < 1:
        raise UserError(f"train.length: {length} leaves no character; make it at least {spare + 3}")
    return length - 2 - spare


def crop(
    windows: Sequence[np.ndarray],
    starts: Sequence[np.ndarray],
    ends: Sequence[np.ndarray],
    capacity: int,
    seed: int,
    sample_ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the range of characters of each window that is used: begin and end, int64 [b] each.

    From a window longer than `capacity`, a run is used. It starts at a random character, moved back to the
    start of its span, and ends with the last span that fits. `starts` and `ends` are the spans that should
    not be cut.
    """
    begin = np.zeros(len(windows), dtype=np.int64)
    end = np.array([len(window) for window in windows], dtype=np.int64)
    long = np.flatnonzero(end > capacity)
    drawn = random.uniform(seed, "crop", sample_ids[long], 1)[:, 0]
    places = (drawn * (end[long] - capacity + 1)).astype(np.int64)
    for row, at in zip(long.tolist(), places.tolist(), strict=True):
        span = int(np.searchsorted(starts[row], at, side="right")) - 1
        begin[row] = starts[row][span] if span >= 0 else at
        fitting = int(np.searchsorted(ends[row], begin[row] + capacity, side="right")) - 1
        has_fitting = fitting >= 0 and ends[row][fitting] > begin[row]
        end[row] = ends[row][fitting] if has_fitting else begin[row] + capacity
    return begin, end


def frame(
    windows: Sequence[np.ndarray], begin: np.ndarray, end: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return [CLS] window[begin:end] [SEP] and padding: codepoints, int64, and mask, bool; [b, length] each."""
    codepoints = np.zeros((len(windows), length), dtype=np.int64)
    codepoints[:, 0] = CLS
    for row, (window, first, last) in enumerate(zip(windows, begin.tolist(), end.tolist(), strict=True)):
        # A loop takes 1.6 us per row, one indexed copy of all rows 4.8 us.
        line = codepoints[row]
        line[1 : 1 + last - first] = window[first:last]
        line[1 + last - first] = SEP
    return codepoints, np.arange(length) < (end - begin + 2)[:, None]


def ragged_range(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return starts[0], starts[0] + 1, ... (sizes[0] of them), starts[1], ..., as int64 [sizes.sum()]."""
    offsets = np.cumsum(sizes) - sizes
    return np.repeat(starts - offsets, sizes) + np.arange(int(sizes.sum()))


_EDGE = np.array([True])
_LONGEST = 31


def words(whitespace: Sequence[np.ndarray], longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the runs without white space: their number per row, int64 [b], and their starts and ends, int64 [sum].

    A run of more than `longest` characters is cut into parts of that length, of which the last may be
    shorter.
    """
    sizes = np.array([len(row) for row in whitespace], dtype=np.int64)
    # Start of each row, with white space in front of every row.
    heads = np.cumsum(sizes + 1) - sizes
    white = np.ones(int((sizes + 1).sum()) + 1, dtype=np.bool_)
    for row, head in zip(whitespace, heads.tolist(), strict=True):
        white[head : head + len(row)] = row
    changes = np.flatnonzero(white[1:] != white[:-1]) + 1
    starts, ends = changes[::2], changes[1::2]
    parts = (ends - starts + longest - 1) // longest
    if len(parts) and parts.max() > 1:
        starts = np.repeat(starts, parts) + longest * ragged_range(np.zeros_like(parts), parts)
        ends = np.minimum(np.repeat(ends, parts), starts + longest)
    of = np.searchsorted(heads, starts, side="right") - 1
    return np.bincount(of, minlength=len(sizes)), starts - heads[of], ends - heads[of]


class FramedWords(NamedTuple):
    """Windows cropped at words and framed, and the words of the whole windows, over all rows."""

    codepoints: np.ndarray  # int64 [b, length]
    mask: np.ndarray  # bool [b, length]: not padding
    begin: np.ndarray  # int64 [b]: first character of the window that is used
    end: np.ndarray  # int64 [b]: the character after the last one that is used
    counts: np.ndarray  # int64 [b]: number of words of each row
    of: np.ndarray  # int64 [sum]: row of each word
    starts: np.ndarray  # int64 [sum]
    ends: np.ndarray  # int64 [sum]


def frame_whole_words(
    rows: Rows, longest: int, spare: int, length: int, seed: int, sample_ids: np.ndarray
) -> FramedWords:
    windows = rows["codepoints"]
    counts, starts, ends = words(rows["whitespace"], longest)
    edges = np.cumsum(counts)[:-1]
    room = character_capacity(length, spare)
    begin, end = crop(windows, np.split(starts, edges), np.split(ends, edges), room, seed, sample_ids)
    codepoints, mask = frame(windows, begin, end, length)
    return FramedWords(
        codepoints, mask, begin, end, counts, np.repeat(np.arange(len(counts)), counts), starts, ends
    )


def character_symbols(buckets: int) -> Symbols:
    def read(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        codepoints, white = (np.concatenate(rows[column]) for column in ("codepoints", "whitespace"))
        # No word crosses rows.
        edged = np.concatenate([part for row in rows["whitespace"] for part in (row, _EDGE)])
        return codepoints[~white].astype(np.int64) % buckets, _place_in_word(edged)[~edged]

    def clues(arrays: Arrays) -> np.ndarray:
        codepoints = arrays["codepoints"]
        outside = ~arrays["mask"] | (classes_of(codepoints.astype(np.uint32)) == SPACE)
        outside |= (codepoints == CLS) | (codepoints == SEP)
        place_codes = _place_in_word(outside.reshape(-1)).reshape(outside.shape)
        return np.take_along_axis(place_codes, arrays["target_positions"], axis=1)

    return Symbols(
        name="character",
        columns=("codepoints", "whitespace"),
        usable=np.ones(buckets, dtype=bool),
        read=read,
        clue="its place in its word",
        clues=clues,
        codepoints=lambda arrays: arrays["target_codepoints"],
    )


def _place_in_word(white: np.ndarray) -> np.ndarray:
    """Return the length of each character's run without white space and its place in it, as one number: int64 [n]."""
    padded = np.concatenate([[True], white, [True]])
    changes = np.flatnonzero(padded[1:] != padded[:-1])
    starts, ends = changes[::2], changes[1::2]
    place_codes, sizes = np.zeros(len(white), dtype=np.int64), ends - starts
    places = ragged_range(np.zeros_like(sizes), sizes)
    lengths = np.minimum(np.repeat(sizes, sizes), _LONGEST)
    place_codes[~white] = lengths * (_LONGEST + 1) + np.minimum(places, _LONGEST)
    return place_codes


WORD_START = "\u2581"  # SentencePiece's mark of a space: at the front of a piece that begins a word
_NO_SUBWORD = re.compile(r"<0x[0-9A-F]{2}>|<unk>|<s>|</s>|<pad>|" + WORD_START + "*")


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
    return piece.strip(WORD_START).replace(WORD_START, " ")


def _begins_word(pieces: Sequence[str]) -> np.ndarray:
    return np.array([piece.startswith(WORD_START) for piece in pieces], dtype=np.int64)


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
