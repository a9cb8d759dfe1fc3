"""From the words of windows to the model's input: their bytes between the words CLS and SEP, and where each word ends.

Used by the objective byte2word and by inference. White space stands between words and is no part of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.text.words import MAX_WORD_BYTES
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.framing import ragged_range
from tokenfree.train.model.embedders.word_bytes import CLS, SEP

NUM_FRAME = 2  # the words CLS and SEP, of one byte each


class Words(NamedTuple):
    """The words of b texts as byte spans into all texts joined end to end."""

    text: np.ndarray  # uint8
    counts: np.ndarray  # int64 [b]
    starts: np.ndarray  # int64 [counts.sum()]
    ends: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each word, int64 [counts.sum()]."""
        return self.ends - self.starts

    @property
    def firsts(self) -> np.ndarray:
        """The number of each text's first word, int64 [b]."""
        return np.cumsum(self.counts) - self.counts

    @property
    def bytes_before(self) -> np.ndarray:
        """Bytes of all words before each one, and of all: int64 [counts.sum() + 1]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def num_bytes(self) -> np.ndarray:
        """Bytes of all words of each text, int64 [b]."""
        before = self.bytes_before
        return before[self.firsts + self.counts] - before[self.firsts]


class Framed(NamedTuple):
    """What an encoder of words reads."""

    codepoints: np.ndarray  # int64 [b, length]: bytes
    mask: np.ndarray  # bool [b, length]: where they are real
    unit_ends: np.ndarray  # int64 [b, words]: the bytes up to which each word reaches


def room_for_words(length: int, bytes_per_word: int) -> tuple[int, int]:
    """Words and bytes of text that fit between CLS and SEP in `length` bytes, in as many units as DOWN then makes.

    Raises:
        UserError: the longest word does not fit, or none.
    """
    num_words, num_bytes = length // bytes_per_word - NUM_FRAME, length - NUM_FRAME
    if num_bytes < MAX_WORD_BYTES or num_words < 1:
        least = max(MAX_WORD_BYTES + NUM_FRAME, (NUM_FRAME + 1) * bytes_per_word)
        raise UserError(
            f"train.length: {length} bytes leave no room for a word of up to {MAX_WORD_BYTES} bytes between CLS and "
            f"SEP, or for any word at {bytes_per_word} bytes a word; make it at least {least}"
        )
    return num_words, num_bytes


def join_words(texts: Sequence[np.ndarray], starts: Sequence[np.ndarray], ends: Sequence[np.ndarray]) -> Words:
    """Words from UTF-8 texts (uint8) and byte spans into each, as the shards hold them."""
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    counts = np.array([len(row) for row in starts], dtype=np.int64)
    shifts = np.repeat(np.cumsum(sizes) - sizes, counts)
    return Words(np.concatenate(texts), counts, np.concatenate(starts) + shifts, np.concatenate(ends) + shifts)


def crop_words(
    words: Words, num_words: int, num_bytes: int, seed: int, sample_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which words of each text are used: the number of the first and how many, int64 [b] each.

    All where they are at most `num_words` of `num_bytes` in sum. Else a run from a random word on, as long as fits;
    each word up to the last from which the run still reaches the end is equally likely to be the first.
    """
    bytes_before, begin = words.bytes_before, words.firsts
    end = begin + words.counts
    enough_bytes = np.searchsorted(bytes_before, bytes_before[end] - num_bytes)
    latest = np.maximum(begin, np.maximum(end - num_words, enough_bytes))
    drawn = random.uniform(seed, "crop", sample_ids, 1)[:, 0]
    first = begin + (drawn * (latest - begin + 1)).astype(np.int64)
    fitting = np.searchsorted(bytes_before, bytes_before[first] + num_bytes, side="right") - 1
    return first, np.minimum(np.minimum(end, first + num_words), fitting) - first


def frame_words(
    text: np.ndarray, starts: np.ndarray, sizes: np.ndarray, counts: np.ndarray, length: int, num_units: int
) -> Framed:
    """[CLS] words [SEP] and padding.

    Args:
        text: uint8, from which the words are taken.
        starts, sizes: int64 [counts.sum()], the place of each word in `text` and its bytes.
        counts: int64 [b], the words of each example.
        length, num_units: bytes and words of an input.
    """
    places, framed = np.cumsum(counts) - counts, counts + NUM_FRAME
    inner = ragged_range(places + NUM_FRAME * np.arange(len(counts)) + 1, counts)
    heads = np.cumsum(framed) - framed
    source, size = np.empty(int(framed.sum()), dtype=np.int64), np.ones(int(framed.sum()), dtype=np.int64)
    source[heads], source[heads + counts + 1] = len(text), len(text) + 1
    source[inner], size[inner] = starts, sizes
    flat = np.concatenate([text, np.array([CLS, SEP], dtype=np.uint8)])[ragged_range(source, size)]

    after = np.cumsum(size)
    totals = after[heads + counts + 1]
    bases = np.concatenate([[0], totals[:-1]])
    totals = totals - bases
    codepoints = np.zeros((len(counts), length), dtype=np.int64)
    for line, base, total in zip(codepoints, bases.tolist(), totals.tolist(), strict=True):
        line[:total] = flat[base : base + total]
    unit_ends = np.repeat(totals[:, None], num_units, axis=1)
    unit_ends[np.arange(num_units) < framed[:, None]] = after - np.repeat(bases, framed)
    return Framed(codepoints, np.arange(length) < totals[:, None], unit_ends)
