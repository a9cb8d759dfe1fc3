"""Which writing systems a text is in, told by Unicode blocks: for the counts of the dataset card and of evaluations."""

from __future__ import annotations

from collections import Counter

import numpy as np

SAMPLING = 16  # every 16th character is looked at: the card needs shares, not exact counts

# (first codepoint, script) of runs of letters; "" is what belongs to no script (digits, punctuation, symbols).
_BLOCKS: tuple[tuple[int, str], ...] = (
    (0x0000, ""), (0x0041, "Latin"), (0x005B, ""), (0x0061, "Latin"), (0x007B, ""), (0x00C0, "Latin"),
    (0x02B0, ""), (0x0370, "Greek"), (0x0400, "Cyrillic"), (0x0530, "Armenian"), (0x0590, "Hebrew"),
    (0x0600, "Arabic"), (0x0700, "Syriac"), (0x0750, "Arabic"), (0x0780, "Thaana"), (0x07C0, "N'Ko"),
    (0x0800, "other"), (0x0870, "Arabic"), (0x0900, "Devanagari"), (0x0980, "Bengali"), (0x0A00, "Gurmukhi"),
    (0x0A80, "Gujarati"), (0x0B00, "Odia"), (0x0B80, "Tamil"), (0x0C00, "Telugu"), (0x0C80, "Kannada"),
    (0x0D00, "Malayalam"), (0x0D80, "Sinhala"), (0x0E00, "Thai"), (0x0E80, "Lao"), (0x0F00, "Tibetan"),
    (0x1000, "Myanmar"), (0x10A0, "Georgian"), (0x1100, "Hangul"), (0x1200, "Ethiopic"), (0x13A0, "Cherokee"),
    (0x1400, "Canadian Aboriginal"), (0x1680, "other"), (0x1780, "Khmer"), (0x1800, "Mongolian"), (0x18B0, "other"),
    (0x1C80, "Cyrillic"), (0x1C90, "Georgian"), (0x1CC0, "other"), (0x1D00, "Latin"), (0x1DC0, ""),
    (0x1E00, "Latin"), (0x1F00, "Greek"), (0x2000, ""), (0x2C00, "other"), (0x2C60, "Latin"), (0x2C80, "Coptic"),
    (0x2D00, "Georgian"), (0x2D30, "Tifinagh"), (0x2D80, "Ethiopic"), (0x2DE0, "Cyrillic"), (0x2E00, ""),
    (0x2E80, "Han"), (0x3000, ""), (0x3005, "Han"), (0x3008, ""), (0x3040, "Hiragana"), (0x30A0, "Katakana"),
    (0x3100, "Bopomofo"), (0x3130, "Hangul"), (0x3190, "other"), (0x3200, ""), (0x3400, "Han"), (0x4DC0, ""),
    (0x4E00, "Han"), (0xA000, "Yi"), (0xA4D0, "other"), (0xA640, "Cyrillic"), (0xA6A0, "other"), (0xA720, "Latin"),
    (0xA800, "other"), (0xA8E0, "Devanagari"), (0xA900, "other"), (0xA980, "Javanese"), (0xA9E0, "Myanmar"),
    (0xAA00, "other"), (0xAB30, "Latin"), (0xAB70, "Cherokee"), (0xABC0, "other"), (0xAC00, "Hangul"),
    (0xD800, ""), (0xF900, "Han"), (0xFB00, "Latin"), (0xFB13, "Armenian"), (0xFB1D, "Hebrew"), (0xFB50, "Arabic"),
    (0xFE00, ""), (0xFE70, "Arabic"), (0xFF00, ""), (0xFF21, "Latin"), (0xFF3B, ""), (0xFF41, "Latin"), (0xFF5B, ""),
    (0xFF66, "Katakana"), (0xFFA0, "Hangul"), (0xFFE0, ""), (0x10000, "other"), (0x1F000, ""), (0x20000, "Han"),
    (0x40000, ""),
)  # fmt: skip
_STARTS = np.array([start for start, _ in _BLOCKS], np.uint32)
_NAMES = np.array([script for _, script in _BLOCKS])


def scripts_of(codepoints: np.ndarray) -> np.ndarray:
    """The script of each codepoint (any integers), str of the same shape; "" for what belongs to none."""
    return _NAMES[np.searchsorted(_STARTS, codepoints, side="right") - 1]


def count_scripts(text: str) -> Counter[str]:
    """How many of every 16th character of `text` are letters of each script."""
    codepoints = np.frombuffer(text[::SAMPLING].encode("utf-32-le"), "<u4")
    blocks = np.bincount(np.searchsorted(_STARTS, codepoints, side="right") - 1, minlength=len(_BLOCKS))
    counts: Counter[str] = Counter()
    for block in np.flatnonzero(blocks):
        counts[_BLOCKS[block][1]] += int(blocks[block])
    del counts[""]
    return counts
