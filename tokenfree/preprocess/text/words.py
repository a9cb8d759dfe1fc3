"""Words as byte spans, which Byte2Word pools (https://arxiv.org/abs/2211.12677): BERT's basic tokens and camel case."""

import numpy as np

from tokenfree.preprocess.text.characters import (
    ALONE,
    DIGIT,
    LOWER,
    MARK,
    SPACE,
    UPPER,
    byte_offsets,
    classes_of,
    codepoints_of,
)

MAX_WORD_BYTES = 128


def word_spans(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends of the words of `text`, both uint32 [words], as byte offsets into `text.encode()`.

    A word ends at white space. Each CJK or punctuation character is a word, and so are the parts of
    "camelCase" and "HTMLParser". A word of more than 128 bytes is cut at a character boundary. Words cover
    all except white space.
    """
    codepoints = codepoints_of(text)
    starts, ends = byte_spans(classes_of(codepoints), byte_offsets(codepoints))
    return starts.astype(np.uint32), ends.astype(np.uint32)


def byte_spans(classes: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `word_spans`, as int64, of a text with these classes (uint8 [n]) and byte offsets (int64 [n + 1])."""
    visible = classes != SPACE
    edges = classes <= ALONE
    cuts = np.ones(len(classes) + 1, dtype=bool)
    np.logical_or(edges[1:], edges[:-1], out=cuts[1:-1])
    cuts[_camel_cuts(classes)] = True
    starts = np.flatnonzero(cuts[:-1] & visible)
    ends = np.flatnonzero(cuts[1:] & visible) + 1
    return limit_bytes(offsets[starts], offsets[ends], offsets)


def _camel_cuts(classes: np.ndarray) -> np.ndarray:
    """Return the positions of capitals that start a word inside a word."""
    marks = classes == MARK
    kept = np.flatnonzero(~marks) if marks.any() else None
    bases = classes if kept is None else classes[kept]
    upper, lower = bases == UPPER, bases == LOWER
    cuts = np.zeros(len(bases), dtype=bool)
    cuts[1:] = upper[1:] & (lower | (bases == DIGIT))[:-1]
    cuts[1:-1] |= upper[:-2] & upper[1:-1] & lower[2:]
    positions = np.flatnonzero(cuts)
    return positions if kept is None else kept[positions]


def limit_bytes(starts: np.ndarray, ends: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut words of more than `MAX_WORD_BYTES` greedily from the left, between characters, which begin at `offsets`."""
    too_long = ends - starts > MAX_WORD_BYTES
    if not too_long.any():
        return starts, ends
    cuts, heads, tails = [], starts[too_long], ends[too_long]
    while len(heads):
        heads = offsets[np.searchsorted(offsets, heads + MAX_WORD_BYTES, side="right") - 1]
        unfinished = heads < tails
        heads, tails = heads[unfinished], tails[unfinished]
        cuts.append(heads)
    return np.sort(np.concatenate([starts, *cuts])), np.sort(np.concatenate([ends, *cuts]))
