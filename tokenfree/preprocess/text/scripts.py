"""Count the writing systems of a text by Unicode's own table, for the dataset card and evaluations."""

from __future__ import annotations

from collections import Counter

import numpy as np
from fontTools.unicodedata import Scripts

SAMPLING = 16  # count every 16th character: the card needs shares, not exact counts

# Runs of codepoints of one script, by the first of each: https://www.unicode.org/reports/tr24/.
_STARTS = np.array(Scripts.RANGES, np.uint32)
# Characters that many scripts share belong to none: spaces, most digits and marks ("Common"), accents, unassigned ones.
_NONE = {"Common", "Inherited", "Unknown"}
_SCRIPTS = tuple(
    "" if (name := Scripts.NAMES[code].replace("_", " ")) in _NONE else name for code in map(str, Scripts.VALUES)
)
_NAMES = np.array(_SCRIPTS)
SCRIPTS = tuple(sorted({*_SCRIPTS} - {""}))


def scripts_of(codepoints: np.ndarray) -> np.ndarray:
    """Return the script of each codepoint (any integers), str of the same shape, or "" if it belongs to none."""
    return _NAMES[np.searchsorted(_STARTS, codepoints, side="right") - 1]


def count_scripts(text: str) -> Counter[str]:
    """Return how many of every 16th character of `text` belong to each script."""
    codepoints = np.frombuffer(text[::SAMPLING].encode("utf-32-le"), "<u4")
    runs = np.bincount(np.searchsorted(_STARTS, codepoints, side="right") - 1, minlength=len(_SCRIPTS))
    counts: Counter[str] = Counter()
    for run in np.flatnonzero(runs):
        counts[_SCRIPTS[run]] += int(runs[run])
    del counts[""]
    return counts
