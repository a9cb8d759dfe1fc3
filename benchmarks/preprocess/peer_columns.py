"""Windows and their columns as an expert user of NumPy, SentencePiece and `re` writes them: what the peers share.

Imports nothing of tokenfree, so that a peer does not pay for it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import sentencepiece

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")
_WORD = re.compile(r"[\u3400-\u9fff]|[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z\u3400-\u9fff]+|[^\w\s]|_")
SPACE = np.zeros(0x110000, bool)
SPACE[[codepoint for codepoint in range(0x3001) if chr(codepoint).isspace()]] = True


def peer_codepoints(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the codepoints of all texts, each followed by a newline, and where each text starts among them."""
    codepoints = np.frombuffer("".join(f"{text}\n" for text in texts).encode("utf-32-le"), np.int32)
    return codepoints, np.cumsum([0, *(len(text) + 1 for text in texts)])


def peer_words(texts: Sequence[str]) -> dict[str, pa.Array]:
    """Return the byte spans of words by a regular expression, with camel case only for ASCII."""
    codepoints, bounds = peer_codepoints(texts)
    spans = np.array([word.span() for word in _WORD.finditer("\n".join(texts))]).reshape(-1, 2)
    widths = 1 + (codepoints > 0x7F) + (codepoints > 0x7FF) + (codepoints > 0xFFFF)
    positions = np.append(0, np.cumsum(widths))
    rows = np.searchsorted(spans[:, 0], bounds)
    starts, ends = positions[spans].T - np.repeat(positions[bounds[:-1]], np.diff(rows))
    return {
        "word_starts": as_lists(rows, starts.astype(np.uint16)),
        "word_ends": as_lists(rows, ends.astype(np.uint16)),
    }


def peer_subwords(
    processor: sentencepiece.SentencePieceProcessor, texts: Sequence[str]
) -> dict[str, pa.Array]:
    """Return ids and the spans, in codepoints, of the visible part of each piece."""
    codepoints, bounds = peer_codepoints(texts)
    spaced = [text.replace("\n", " ") for text in texts]
    encoded = processor.encode(spaced, return_type="offset_mapping", num_threads=1)
    ids = np.concatenate([np.array(row["ids"], np.int32) for row in encoded])
    starts, ends = np.concatenate([np.array(row["offsets"], np.int64).reshape(-1, 2) for row in encoded]).T
    rows = np.cumsum([0, *(len(row["ids"]) for row in encoded)])
    ends = np.maximum(ends, starts + 1)
    starts = starts + SPACE[codepoints[starts + np.repeat(bounds[:-1], np.diff(rows))]]
    kept = np.flatnonzero(starts < ends)
    rows = np.searchsorted(kept, rows)
    columns = {
        "subword_ids": ids,
        "subword_starts": starts.astype(np.uint16),
        "subword_ends": ends.astype(np.uint16),
    }
    return {name: as_lists(rows, values[kept]) for name, values in columns.items()}


def piece_lengths(processor: sentencepiece.SentencePieceProcessor) -> np.ndarray:
    """Return the characters of each piece: of bytes, those that begin a character have one, others none."""
    lengths = [len(processor.id_to_piece(number)) for number in range(processor.get_piece_size())]
    for number in filter(processor.is_byte, range(len(lengths))):
        lengths[number] = int(processor.id_to_piece(number)[3:5], 16) & 0xC0 != 0x80
    return np.array(lengths)


def summed_subwords(
    processor: sentencepiece.SentencePieceProcessor, lengths: np.ndarray, texts: Sequence[str]
) -> dict[str, pa.Array]:
    """Return ids and the spans, in codepoints, of the visible part of each piece, which has one space at its start.

    No text may have a character that the model normalises, or unknown pieces.
    """
    codepoints, bounds = peer_codepoints(texts)
    encoded = processor.encode([text.replace("\n", " ") for text in texts], num_threads=1)
    ids = np.concatenate([np.array(row, np.int32) for row in encoded])
    rows = np.cumsum([0, *map(len, encoded)])
    sums = np.append(0, np.cumsum(lengths[ids]))
    bases = np.repeat(sums[rows[:-1]] + 1, np.diff(rows))  # a space is added before each text
    starts, ends = np.maximum(sums[:-1] - bases, 0) - (lengths[ids] == 0), sums[1:] - bases
    starts = starts + SPACE[codepoints[starts + np.repeat(bounds[:-1], np.diff(rows))]]
    kept = np.flatnonzero(starts < ends)
    columns = {
        "subword_ids": ids,
        "subword_starts": starts.astype(np.uint16),
        "subword_ends": ends.astype(np.uint16),
    }
    rows = np.searchsorted(kept, rows)
    return {name: as_lists(rows, values[kept]) for name, values in columns.items()}


def peer_columns(texts: Sequence[str], subwords: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return all columns of windows that follow from their texts, except sentences, with these of subwords."""
    codepoints = np.frombuffer("".join(texts).encode("utf-32-le"), np.int32)
    rows = np.cumsum([0, *map(len, texts)])
    columns = {"codepoints": as_lists(rows, codepoints), "whitespace": as_lists(rows, SPACE[codepoints])}
    return columns | peer_words(texts) | subwords


def as_lists(rows: np.ndarray, values: np.ndarray) -> pa.Array:
    """Return the list column whose row i is `values[rows[i]:rows[i + 1]]`."""
    return pa.ListArray.from_arrays(pa.array(rows, pa.int32()), pa.array(values))


def cut(text: str, max_characters: int) -> Iterator[tuple[str, list[int]]]:
    """Yield windows of whole sentences, and where these start.

    A sentence that is too long is cut anywhere.
    """
    bounds = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    start, sentences = 0, [0]
    for begin, end in itertools.pairwise(bounds):
        while end - start > max_characters:
            stop = begin if begin > start else start + max_characters
            yield text[start:stop], sentences
            start, sentences = stop, [0]
            begin = max(begin, stop)
        if begin > start:
            sentences.append(begin - start)
    if start < len(text):
        yield text[start:], sentences
