"""Characters as inputs and targets: framing with CLS and SEP, words as targets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.text.characters import SPACE, classes_of
from tokenfree.preprocess.text.specials import CLS, SEP
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays, Rows, Symbols


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
