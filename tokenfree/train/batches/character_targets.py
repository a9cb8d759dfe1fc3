"""Characters as targets, and the words that they form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenfree.preprocess.text.characters import SPACE, classes_of
from tokenfree.train.batches.collator import Arrays, Rows, Symbols
from tokenfree.train.batches.framing import CLS, SEP, ragged_range

_EDGE = np.array([True])
_LONGEST = 31


def words(whitespace: Sequence[np.ndarray], longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The runs without white space of each row: how many, int64 [b]; starts and ends, int64 [sum] over all rows.

    A run of more than `longest` characters is cut into as few as need be, all of that length but the last.
    """
    sizes = np.array([len(row) for row in whitespace], dtype=np.int64)
    heads = np.cumsum(sizes + 1) - sizes  # where each row begins when every one has white space in front
    white = np.ones(int((sizes + 1).sum()) + 1, dtype=np.bool_)
    for row, head in zip(whitespace, heads.tolist(), strict=True):
        white[head : head + len(row)] = row
    changes = np.flatnonzero(white[1:] != white[:-1]) + 1
    starts, ends = changes[::2], changes[1::2]
    parts = (ends - starts + longest - 1) // longest
    if len(parts) and parts.max() > 1:
        numbers = ragged_range(np.zeros_like(parts), parts)
        starts = np.repeat(starts, parts) + longest * numbers
        ends = np.minimum(np.repeat(ends, parts), starts + longest)
    of = np.searchsorted(heads, starts, side="right") - 1
    return np.bincount(of, minlength=len(sizes)), starts - heads[of], ends - heads[of]


def character_symbols(buckets: int) -> Symbols:
    """The buckets (codepoints modulo their number) of all characters but white space as targets.

    White space is never hidden, so one sees how long a hidden character's word is, and where in it the character is.
    """

    def read(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        codepoints, white = (np.concatenate(rows[column]) for column in ("codepoints", "whitespace"))
        edged = np.concatenate([part for row in rows["whitespace"] for part in (row, _EDGE)])  # no word goes on
        return codepoints[~white].astype(np.int64) % buckets, _place_in_word(edged)[~edged]

    def clues(arrays: Arrays) -> np.ndarray:
        codepoints = arrays["codepoints"]
        outside = ~arrays["mask"] | (classes_of(codepoints.astype(np.uint32)) == SPACE)
        outside |= (codepoints == CLS) | (codepoints == SEP)
        found = _place_in_word(outside.reshape(-1)).reshape(outside.shape)
        return np.take_along_axis(found, arrays["target_positions"], axis=1)

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
    """Of each place the length of its run without white space, and where in the run it is, as one number: int64 [n].

    0 for white space. Longer runs than `_LONGEST` count as that long.
    """
    padded = np.concatenate([[True], white, [True]])
    changes = np.flatnonzero(padded[1:] != padded[:-1])
    starts, ends = changes[::2], changes[1::2]
    found, sizes = np.zeros(len(white), dtype=np.int64), ends - starts
    places = ragged_range(np.zeros_like(sizes), sizes)
    lengths = np.minimum(np.repeat(sizes, sizes), _LONGEST)
    found[~white] = lengths * (_LONGEST + 1) + np.minimum(places, _LONGEST)
    return found
