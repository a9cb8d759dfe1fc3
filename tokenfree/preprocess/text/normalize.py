"""Unicode normalisation of documents, before anything is counted, cut or hashed."""

import functools
import re
import unicodedata

import numpy as np

from tokenfree.preprocess.text.characters import MARK, class_table, codepoints_of

# Unicode's Stream-Safe limit (UAX #15). No real text comes close, and NFC takes quadratic time in the length of a run.
MAX_MARKS = 30
# Control characters that are not white space (bytes 0x00 to 0x04 are Byte2Word's special tokens); lone surrogates,
# which have no UTF-8; noncharacters and the byte order mark; and the private codepoints that stand for the models'
# special symbols (CANINE's U+E000 to U+E004, with room for more). In two expressions because one that mixes planes
# scans 28 MB/s, and these two scan 200.
_REMOVED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ue000-\ue00f\ufdd0-\ufdef\ufeff\ufffe\uffff]+"
)
_BEHIND_EMOJI = re.compile("[\U0001fffe-\U0010ffff]")
_NONCHARACTERS = re.compile(
    "[" + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000)) + "]+"
)
_BLANK_LINES = re.compile("\n{3,}")


def normalize(text: str) -> str:
    """Return `text` in NFC, without control characters, with tidy white space. A second call changes nothing.

    All line ends become newlines. Within a line, runs of white space become one space, and none is left at either end.
    There is at most one blank line between lines, and none at the start or end of the text. A run of combining marks is
    cut after the thirtieth.
    """
    text = _REMOVED.sub("", text)
    if not text.isascii():
        if _BEHIND_EMOJI.search(text):
            text = _NONCHARACTERS.sub("", text)
        text = _limit_marks(unicodedata.normalize("NFC", _limit_marks(text)))
    text = "\n".join([" ".join(line.split()) for line in text.splitlines()])
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.strip("\n")


def _limit_marks(text: str) -> str:
    codepoints = codepoints_of(text)
    # A run that is too long contains two neighbours of this sample.
    sample = _combining_table()[codepoints[:: MAX_MARKS // 2]]
    if not (sample[1:] & sample[:-1]).any():
        return text
    combines = _combining_table()[codepoints]
    positions = np.arange(len(codepoints))
    bases = np.maximum.accumulate(np.where(combines, -1, positions))
    return codepoints[positions - bases <= MAX_MARKS].tobytes().decode("utf-32-le")


@functools.cache
def _combining_table() -> np.ndarray:
    """Return for each codepoint whether NFC may move it, bool [0x110000]."""
    table = class_table() == MARK
    for codepoint in np.flatnonzero(table).tolist():
        table[codepoint] = unicodedata.combining(chr(codepoint)) != 0
    return table
