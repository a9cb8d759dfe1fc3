"""Text as an array of codepoints, with their classes and their writing systems by Unicode's own tables."""

import functools
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files

import numpy as np

# Characters of classes below WORD_PART separate words or are words by themselves. Comparisons use the order.
SPACE, ALONE, WORD_PART, UPPER, LOWER, DIGIT, MARK = range(7)

_CLASS_OF_CATEGORY = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Nd": DIGIT, "Mn": MARK, "Mc": MARK, "Me": MARK,
                      "Cf": MARK, "Pc": ALONE, "Pd": ALONE, "Ps": ALONE, "Pe": ALONE, "Pi": ALONE, "Pf": ALONE,
                      "Po": ALONE}  # fmt: skip
# Planes 2 and 3 are ideographs, 4 to 13 are empty, 15 and 16 private: they have the same class without a
# lookup.
_ASSIGNED = (range(0x20000), range(0xE0000, 0xE1000))
# The blocks of BERT's basic tokenizer, and the ideographs that Unicode has added since.
_CJK = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x3FFFE))
_ASCII_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


@functools.cache
def class_table() -> np.ndarray:
    """Return the class of each of the 0x110000 codepoints, uint8. The first call takes about 50 ms."""
    table = np.full(sys.maxunicode + 1, WORD_PART, dtype=np.uint8)
    for block in _ASSIGNED:
        table[block.start : block.stop] = [
            _CLASS_OF_CATEGORY.get(category, WORD_PART)
            for category in map(unicodedata.category, map(chr, block))
        ]
    for start, end in _CJK:
        table[start:end] = ALONE
    table[[ord(character) for character in _ASCII_PUNCTUATION]] = ALONE
    table[[codepoint for codepoint in range(0x3001) if chr(codepoint).isspace()]] = SPACE
    table.setflags(write=False)
    return table


def codepoints_of(text: str) -> np.ndarray:
    """Return `ord` of each character, uint32 [len(text)], read-only. Surrogates are characters."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def text_of(codepoints: np.ndarray) -> str:
    return codepoints.tobytes().decode("utf-32-le", "surrogatepass")


def classes_of(codepoints: np.ndarray) -> np.ndarray:
    """Return the class of each codepoint (any unsigned dtype), uint8 of the same shape."""
    return class_table().take(codepoints)


def byte_offsets(codepoints: np.ndarray) -> np.ndarray:
    """Return where each character starts in UTF-8, int64 [characters + 1].

    The last entry is the number of bytes.
    """
    return cumulate(_width_table().take(codepoints))


def cumulate(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, 2, ... counts, int64 [counts + 1]."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(np.asarray(counts, np.int64), out=sums[1:])
    return sums


@functools.cache
def _width_table() -> np.ndarray:
    """Return the bytes of each codepoint in UTF-8, uint8 [0x110000]."""
    return np.repeat(np.arange(1, 5, dtype=np.uint8), np.diff([0, 0x80, 0x800, 0x10000, sys.maxunicode + 1]))


# Count every 16th character: the card needs shares, not exact counts.
SAMPLING = 16

# Runs of codepoints of one script, by the first of each: https://www.unicode.org/reports/tr24/. Characters
# that many scripts share belong to none: spaces, most digits and marks, accents. tools/docs/list_scripts.py
# writes the table.
_TABLE = files("tokenfree.preprocess.text").joinpath("scripts.txt").read_text("ascii")
_RUNS = [line.partition(" ") for line in _TABLE.splitlines()]
_STARTS = np.array([int(start, 16) for start, _, _ in _RUNS], np.uint32)
_SCRIPTS = tuple(script for _, _, script in _RUNS)
_NAMES = np.array(_SCRIPTS)
SCRIPTS = tuple(sorted({*_SCRIPTS} - {""}))


def scripts_of(codepoints: np.ndarray) -> np.ndarray:
    """Return the script of each codepoint (any integers), str of the same shape, or "" if it belongs to none."""
    return _NAMES[np.searchsorted(_STARTS, codepoints, side="right") - 1]


def count_scripts(texts: Iterable[str]) -> Counter[str]:
    """Return how many of every 16th character of each text belong to each script."""
    codepoints = codepoints_of("".join(text[::SAMPLING] for text in texts))
    runs = np.bincount(np.searchsorted(_STARTS, codepoints, side="right") - 1, minlength=len(_SCRIPTS))
    counts: Counter[str] = Counter()
    for run in np.flatnonzero(runs):
        counts[_SCRIPTS[run]] += int(runs[run])
    del counts[""]
    return counts
