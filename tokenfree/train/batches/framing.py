"""From a window to the model's input: choose a run of it, put CLS before and SEP after, pad to a fixed length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches import counter_random as random

PAD, CLS, SEP, BOS, MASK = 0x0000, 0xE000, 0xE001, 0xE002, 0xE003  # private-use codepoints, as in CANINE's code


def room_for_characters(length: int, spare: int) -> int:
    """Characters that fit between CLS and SEP in `length` positions, `spare` of them left as padding.

    Raises:
        UserError: for less than one.
    """
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
    """Which characters of each window are used: begin and end, int64 [b]; all of a window of at most `capacity`.

    Of a longer one, a run that starts at a random character, moved back to the start of its span, and ends with the
    last span that fits. `starts` and `ends` are the spans (subwords, words) that should not be cut.
    """
    begin = np.zeros(len(windows), dtype=np.int64)
    end = np.array([len(window) for window in windows], dtype=np.int64)
    long = np.flatnonzero(end > capacity)
    if len(long):
        drawn = random.uniform(seed, "crop", sample_ids[long], 1)[:, 0]
        for row, at in zip(long.tolist(), (drawn * (end[long] - capacity + 1)).astype(np.int64).tolist(), strict=True):
            span = int(np.searchsorted(starts[row], at, side="right")) - 1
            begin[row] = starts[row][span] if span >= 0 else at
            fitting = int(np.searchsorted(ends[row], begin[row] + capacity, side="right")) - 1
            end[row] = begin[row] + capacity
            if fitting >= 0 and ends[row][fitting] > begin[row]:
                end[row] = ends[row][fitting]
    return begin, end


def frame(
    windows: Sequence[np.ndarray], begin: np.ndarray, end: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] window[begin:end] [SEP] and padding: codepoints int64 [b, length], and where they are real, bool alike."""
    codepoints = np.zeros((len(windows), length), dtype=np.int64)
    codepoints[:, 0] = CLS
    for row, (window, first, last) in enumerate(zip(windows, begin.tolist(), end.tolist(), strict=True)):
        line = codepoints[row]  # row by row takes 1.6 us a row, one indexed copy of all rows 4.8
        line[1 : 1 + last - first] = window[first:last]
        line[1 + last - first] = SEP
    return codepoints, np.arange(length) < (end - begin + 2)[:, None]


def ragged_range(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ... (sizes[0] of them), starts[1], ...: int64 [sizes.sum()]."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))
