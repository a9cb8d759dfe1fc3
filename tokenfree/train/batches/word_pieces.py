"""What the words of Byte2Word are, and the subwords that stand behind each: words by rules, or the subwords themselves.

Words by rules are tokenised one by one, each as if it stood alone, so that subwords align with words whatever the
vocabulary: in running text about 1% of the subwords lie across the edges of words, and of Chinese text most would if
the vocabulary held its characters. Of the other words 96 to 99% get the subwords that they have in running text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Protocol

import numpy as np

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.words import MAX_WORD_BYTES
from tokenfree.train.batches.collator import Rows
from tokenfree.train.batches.word_framing import Words, join_words

_MOST_KNOWN = 2**17  # words kept with their subwords, 35 MB; past it all are forgotten and learnt anew
_CONTINUES = -65  # UTF-8 bytes inside a character are at most this as int8
_BYTE_PIECE = "<0x"


class WordSource(Protocol):
    """Where words and their subwords come from."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the shards that are read."""
        ...

    def words(self, rows: Rows) -> Words:
        """All words of some rows."""
        ...

    def pieces(self, rows: Rows, words: Words, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all subwords of the words `numbers` (int64 [n]), one after another, int64 [sum of the counts]; and
        how many each word has, int64 [n].
        """
        ...


class WordsByRules:
    """The words of the shards (see preprocess/text/words.py), tokenised by the vocabulary when first met."""

    columns = ("text", "word_starts", "word_ends")

    def __init__(self, vocabulary: Vocabulary, *, lower_case: bool) -> None:
        self._vocabulary = vocabulary
        self._lower_case = lower_case
        self._known: dict[bytes, list[int]] = {}

    def words(self, rows: Rows) -> Words:
        """The words of the columns `word_starts` and `word_ends`."""
        return join_words(rows["text"], rows["word_starts"], rows["word_ends"])

    def pieces(self, rows: Rows, words: Words, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `WordSource.pieces`: those that the vocabulary gives to each word alone."""
        text = words.text.tobytes()
        spans = zip(words.starts[numbers].tolist(), words.ends[numbers].tolist(), strict=True)
        found = self._look_up([text[start:end] for start, end in spans])
        ids = np.fromiter(chain.from_iterable(found), dtype=np.int64)
        return ids, np.fromiter(map(len, found), dtype=np.int64, count=len(found))

    def _look_up(self, words: Sequence[bytes]) -> list[list[int]]:
        known = self._known
        new = list(dict.fromkeys(word for word in words if word not in known))
        if new:
            if len(known) + len(new) > _MOST_KNOWN:
                known.clear()
                new = list(dict.fromkeys(words))
            texts = [word.decode() for word in new]
            flat = self._vocabulary.encode_flat([text.lower() for text in texts] if self._lower_case else texts)
            ids = flat.ids.tolist()
            known.update(zip(new, (ids[start:end] for start, end in pairwise(flat.offsets.tolist())), strict=True))
        return [known[word] for word in words]


class SubwordsAsWords:
    """Pseudo-words: each subword of the running text is a word, spelled in bytes; a byte-fallback piece is its byte."""

    columns = ("text", "subword_ids", "subword_starts", "subword_ends")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._is_byte = np.array([piece.startswith(_BYTE_PIECE) for piece in vocabulary.pieces()], dtype=bool)

    def words(self, rows: Rows) -> Words:
        """The subwords; of a longer one (an unknown run) the first `MAX_WORD_BYTES` bytes."""
        texts, counts = rows["text"], np.array([len(row) for row in rows["subword_ids"]], dtype=np.int64)
        text = np.concatenate(texts)
        places = np.append(np.flatnonzero(text.view(np.int8) > _CONTINUES), len(text))  # of characters
        sizes = np.array([len(row) for row in texts], dtype=np.int64)
        shifts = np.repeat(np.searchsorted(places, np.cumsum(sizes) - sizes), counts)
        starts, ends = (places[np.concatenate(rows[column]) + shifts] for column in ("subword_starts", "subword_ends"))
        if len(starts):
            numbers = np.arange(len(starts))
            is_byte = self._is_byte[np.concatenate(rows["subword_ids"])]
            begins = np.append(True, starts[1:] != starts[:-1])
            later = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))  # bytes of the same character before
            starts = np.where(is_byte, np.minimum(starts + later, ends - 1), starts)
            ends = np.where(is_byte, starts + 1, np.minimum(ends, starts + MAX_WORD_BYTES))
        return Words(text, counts, starts, ends)

    def pieces(self, rows: Rows, words: Words, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `WordSource.pieces`: one for each word, itself."""
        return np.concatenate(rows["subword_ids"])[numbers].astype(np.int64), np.ones(len(numbers), dtype=np.int64)
