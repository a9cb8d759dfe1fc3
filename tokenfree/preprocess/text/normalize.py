"""Unicode normalisation of documents, before anything is counted, cut or hashed."""

import functools
import unicodedata

import numpy as np

from tokenfree.preprocess.text.characters import MARK, SPACE, class_table, codepoints_of, text_of

# Unicode's Stream-Safe limit (UAX #15). No real text comes close, and NFC takes quadratic time in the length
# of a run.
MAX_MARKS = 30
SHORT = 500  # characters; for longer texts, tables are faster than looking first
# Control characters that are not white space (bytes 0x00 to 0x04 are Byte2Word's special tokens); lone
# surrogates, which have no UTF-8; noncharacters and the byte order mark; and the private codepoints that
# stand for the models' special symbols (CANINE's U+E000 to U+E004, with room for more).
_REMOVED_RANGES = ((0, 8), (0x0E, 0x1B), (0x7F, 0x84), (0x86, 0x9F), (0xD800, 0xDFFF), (0xE000, 0xE00F),
                   (0xFDD0, 0xFDEF), (0xFEFF, 0xFEFF), *((plane + 0xFFFE, plane + 0xFFFF) for plane in
                   range(0, 0x110000, 0x10000)))  # fmt: skip
_KEPT, _COMBINING, _REMOVED, _TIDY, _UNTIDY = range(5)  # the last two are white space


def normalize(text: str) -> str:
    """Return `text` in NFC, without control characters, with tidy white space. A second call changes nothing.

    Runs of white space in a line become one space, and there is at most one blank line between lines. A run
    of combining marks is cut after the thirtieth.
    """
    if len(text) <= SHORT and _is_normal(text):
        return text.strip()
    codepoints = codepoints_of(text)
    kinds = _kinds().take(codepoints)
    removed = kinds == _REMOVED
    if removed.any():
        text, kinds = text_of(codepoints[~removed]), kinds[~removed]
    text = _tidy_space(text, kinds)
    if not text.isascii():
        # NFC costs ten times as much where a combining mark occurs, so it gets a line at a time.
        lines = _limit_marks(text).split("\n")
        text = _limit_marks("\n".join([unicodedata.normalize("NFC", line) for line in lines]))
    return text


def _is_normal(text: str) -> bool:
    """Return True for one line that only needs stripping. What is not printable is removed or other white space."""
    return (
        text.isprintable()
        and "  " not in text
        and (text.isascii() or unicodedata.is_normalized("NFC", text))
        and (len(text) <= MAX_MARKS or text.isascii() or not any(map(unicodedata.combining, text)))
    )


def _tidy_space(text: str, kinds: np.ndarray) -> str:
    spaces = kinds >= _TIDY
    doubled = spaces[1:] & spaces[:-1]
    untidy = kinds == _UNTIDY
    untidy[1:] |= doubled
    untidy[:-1] |= doubled
    edges = np.flatnonzero(np.diff(untidy, prepend=False, append=False))
    pieces, position = [], 0
    for start, end in edges.reshape(-1, 2).tolist():
        num_line_ends = len(f"|{text[start:end]}|".splitlines()) - 1
        pieces += (text[position:start], "\n" * min(num_line_ends, 2) or " ")
        position = end
    return "".join([*pieces, text[position:]]).strip()


def _limit_marks(text: str) -> str:
    # A run that is too long contains two neighbours of this sample.
    sample = _kinds().take(codepoints_of(text[:: MAX_MARKS // 2])) == _COMBINING
    if not (sample[1:] & sample[:-1]).any():
        return text
    codepoints = codepoints_of(text)
    combines = _kinds()[codepoints] == _COMBINING
    positions = np.arange(len(codepoints))
    bases = np.maximum.accumulate(np.where(combines, -1, positions))
    return text_of(codepoints[positions - bases <= MAX_MARKS])


@functools.cache
def _kinds() -> np.ndarray:
    """Return what becomes of each codepoint, uint8 [0x110000]."""
    kinds = np.full(len(class_table()), _KEPT, np.uint8)
    marks = np.flatnonzero(class_table() == MARK).tolist()
    kinds[[codepoint for codepoint in marks if unicodedata.combining(chr(codepoint))]] = _COMBINING
    kinds[class_table() == SPACE] = _UNTIDY
    kinds[[ord(" "), ord("\n")]] = _TIDY
    for first, last in _REMOVED_RANGES:
        kinds[first : last + 1] = _REMOVED
    return kinds
