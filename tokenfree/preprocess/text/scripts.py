"""Count the writing systems of a text by Unicode's own table, for the dataset card and evaluations."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

import numpy as np

from tokenfree.preprocess.text.characters import codepoints_of

SAMPLING = 16  # count every 16th character: the card needs shares, not exact counts

# Runs of codepoints of one script, by the first of each: https://www.unicode.org/reports/tr24/. Characters that many
# scripts share belong to none: spaces, most digits and marks, accents. docs/tools/list_scripts.py writes the table.
_TABLE = files("tokenfree.preprocess.text").joinpath("scripts.txt").read_text("ascii")
_RUNS = [line.partition(" ") for line in _TABLE.splitlines()]
_STARTS = np.array([int(start, 16) for start, _, _ in _RUNS], np.uint32)
_SCRIPTS = tuple(script for _, _, script in _RUNS)
_NAMES = np.array(_SCRIPTS)
SCRIPTS = tuple(sorted({*_SCRIPTS} - {""}))


def scripts_of(codepoints: np.ndarray) -> np.ndarray:
    """Return the script of each codepoint (any integers), str of the same shape, or "" if it belongs to none."""
    return _NAMES[np.searchsorted(_STARTS, codepoints, side="right") - 1]


def count_scripts(text: str) -> Counter[str]:
    """Return how many of every 16th character of `text` belong to each script."""
    codepoints = codepoints_of(text[::SAMPLING])
    runs = np.bincount(np.searchsorted(_STARTS, codepoints, side="right") - 1, minlength=len(_SCRIPTS))
    counts: Counter[str] = Counter()
    for run in np.flatnonzero(runs):
        counts[_SCRIPTS[run]] += int(runs[run])
    del counts[""]
    return counts
