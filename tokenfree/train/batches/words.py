"""Words of bytes as inputs and targets of Byte2Word; used by the objective and by inference.

White space separates words and is not part of the input. Words by rules are tokenised one by one, so that
subwords align with words for any vocabulary. 96 to 99% of them get the same subwords as in running text.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.characters import byte_offsets, classes_of, codepoints_of
from tokenfree.preprocess.text.specials import BYTE_CLS, BYTE_MASK, BYTE_SEP
from tokenfree.preprocess.text.words import MAX_WORD_BYTES, byte_spans, limit_bytes
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Rows, ragged_range

NOWHERE = -1


class WordsOfText(NamedTuple):
    """The words of a text without surrogates and without characters whose codepoints are special symbols."""

    utf8: np.ndarray  # uint8 [bytes]
    starts: np.ndarray  # int64 [words]: first byte of each word
    ends: np.ndarray  # int64 [words]: the byte after the last one
    word_of: np.ndarray  # int64 [characters]: word of each character of the whole text, -1 outside words


def text_words(text: str, original: str | None = None) -> WordsOfText:
    """Find the words of a text. `original`, the text before its case changed, decides where words begin."""
    codepoints = codepoints_of(text)
    kept = np.flatnonzero((codepoints > BYTE_MASK) & ((codepoints < 0xD800) | (codepoints > 0xDFFF)))
    clean = codepoints[kept]
    offsets = byte_offsets(clean)
    starts, ends = _spans(clean if original is None else codepoints_of(original)[kept], offsets)
    places = offsets[:-1]
    word = np.searchsorted(ends, places, side="right")
    inside = places >= np.append(starts, offsets[-1])[word]
    word_of = np.full(len(codepoints), NOWHERE)
    word_of[kept[inside]] = word[inside]
    utf8 = np.frombuffer(clean.tobytes().decode("utf-32-le").encode(), dtype=np.uint8)
    return WordsOfText(utf8, starts, ends, word_of)


def _spans(original: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return byte spans of the words of `original`.

    Changing the case can change a letter's length in UTF-8.
    """
    original_offsets = byte_offsets(original)
    starts, ends = (
        offsets[np.searchsorted(original_offsets, span)]
        for span in byte_spans(classes_of(original), original_offsets)
    )
    return limit_bytes(starts, ends, offsets)


NUM_FRAME = 2  # the words CLS and SEP, of one byte each


class Words(NamedTuple):
    """The words of b texts, as byte spans of the texts joined end to end."""

    text: np.ndarray  # uint8
    counts: np.ndarray  # int64 [b]
    starts: np.ndarray  # int64 [counts.sum()]
    ends: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return self.ends - self.starts

    @property
    def firsts(self) -> np.ndarray:
        return np.cumsum(self.counts) - self.counts

    @property
    def bytes_before(self) -> np.ndarray:
        """Number of bytes in all words before each one, and in all words: int64 [counts.sum() + 1]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def num_bytes(self) -> np.ndarray:
        offsets = self.bytes_before
        return offsets[self.firsts + self.counts] - offsets[self.firsts]


class Framed(NamedTuple):
    """The input of an encoder of words."""

    codepoints: np.ndarray  # int64 [b, length]: bytes
    mask: np.ndarray  # bool [b, length]: not padding
    unit_ends: np.ndarray  # int64 [b, words]: the byte after the last one of each word


def word_capacity(length: int, bytes_per_word: int) -> tuple[int, int]:
    """Return the numbers of words and of bytes of text that fit between CLS and SEP in `length` bytes.

    DOWN makes `length` / `bytes_per_word` units. Raises UserError if the longest word does not fit, or no
    word does.
    """
    num_words, num_bytes = length // bytes_per_word - NUM_FRAME, length - NUM_FRAME
    if num_bytes < MAX_WORD_BYTES or num_words < 1:
        min_length = max(MAX_WORD_BYTES + NUM_FRAME, (NUM_FRAME + 1) * bytes_per_word)
        raise UserError(
            f"train.length: {length} bytes leave no room for a word of up to {MAX_WORD_BYTES} bytes between CLS and "
            f"SEP, or for any word at {bytes_per_word} bytes a word; make it at least {min_length}"
        )
    return num_words, num_bytes


def join_words(
    texts: Sequence[np.ndarray], starts: Sequence[np.ndarray], ends: Sequence[np.ndarray]
) -> Words:
    """Return the words of UTF-8 texts (uint8) from byte spans of each text, as the shards hold them."""
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    counts = np.array([len(row) for row in starts], dtype=np.int64)
    shifts = np.repeat(np.cumsum(sizes) - sizes, counts)
    return Words(
        np.concatenate(texts), counts, np.concatenate(starts) + shifts, np.concatenate(ends) + shifts
    )


def crop_words(
    words: Words, num_words: int, num_bytes: int, seed: int, sample_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of each text that are used: index of the first and number, int64 [b] each.

    If they exceed `num_words` or `num_bytes`, a run from a random word on is used, as long as fits. Its first
    word is drawn uniformly from those up to the first one from which the run reaches the end of the text.
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
    """Frame words as [CLS] words [SEP] and padding, in inputs of `length` bytes and `num_units` words.

    `starts` and `sizes`, int64 [counts.sum()], place the words in `text`, uint8. `counts`, int64 [b], is the
    number of words of each example.
    """
    places, framed = np.cumsum(counts) - counts, counts + NUM_FRAME
    inner = ragged_range(places + NUM_FRAME * np.arange(len(counts)) + 1, counts)
    heads = np.cumsum(framed) - framed
    source, size = np.empty(int(framed.sum()), dtype=np.int64), np.ones(int(framed.sum()), dtype=np.int64)
    source[heads], source[heads + counts + 1] = len(text), len(text) + 1
    source[inner], size[inner] = starts, sizes
    flat = np.concatenate([text, np.array([BYTE_CLS, BYTE_SEP], dtype=np.uint8)])[ragged_range(source, size)]

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


_MAX_CACHED_WORDS = 2**17  # words cached with their subwords, 35 MB; a full cache is cleared
_CONTINUES = -65  # continuation bytes of UTF-8 are at most this as int8
_BYTE_PIECE = "<0x"


class WordSource(ABC):
    columns: tuple[str, ...]  # shard columns that are read

    @abstractmethod
    def words(self, rows: Rows) -> Words:
        """Return all words of `rows`."""

    @abstractmethod
    def pieces(self, rows: Rows, words: Words, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all subwords of the words `numbers` (int64 [n]), and how many each has, int64 [n]."""


class WordsByRules(WordSource):
    """The words of the shards, by the rules of preprocess/text/words.py.

    The vocabulary tokenises each one once.
    """

    columns = ("text", "word_starts", "word_ends")

    def __init__(self, vocabulary: Vocabulary, *, lower_case: bool) -> None:
        self._vocabulary = vocabulary
        self._lower_case = lower_case
        self._known: dict[bytes, list[int]] = {}

    def words(self, rows: Rows) -> Words:
        return join_words(rows["text"], rows["word_starts"], rows["word_ends"])

    def pieces(self, rows: Rows, words: Words, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        text = words.text.tobytes()
        spans = zip(words.starts[numbers].tolist(), words.ends[numbers].tolist(), strict=True)
        ids_by_word = self._look_up([text[start:end] for start, end in spans])
        ids = np.fromiter(chain.from_iterable(ids_by_word), dtype=np.int64)
        return ids, np.fromiter(map(len, ids_by_word), dtype=np.int64, count=len(ids_by_word))

    def _look_up(self, words: Sequence[bytes]) -> list[list[int]]:
        cache = self._known
        new = list(dict.fromkeys(word for word in words if word not in cache))
        if new:
            if len(cache) + len(new) > _MAX_CACHED_WORDS:
                cache.clear()
                new = list(dict.fromkeys(words))
            texts = [word.decode() for word in new]
            flat = self._vocabulary.encode_flat(
                [text.lower() for text in texts] if self._lower_case else texts
            )
            ids = flat.ids.tolist()
            cache.update(
                zip(new, (ids[start:end] for start, end in pairwise(flat.offsets.tolist())), strict=True)
            )
        return [cache[word] for word in words]


class SubwordsAsWords(WordSource):
    """Pseudo-words: each subword of the running text is a word, spelled in bytes.

    A byte-fallback piece is its byte.
    """

    columns = ("text", "subword_ids", "subword_starts", "subword_ends")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._is_byte = np.array([piece.startswith(_BYTE_PIECE) for piece in vocabulary.pieces], dtype=bool)

    def words(self, rows: Rows) -> Words:
        """Return the subwords of `rows` as words.

        Longer ones (unknown runs) are cut to `MAX_WORD_BYTES` bytes.
        """
        texts, counts = rows["text"], np.array([len(row) for row in rows["subword_ids"]], dtype=np.int64)
        text = np.concatenate(texts)
        # Starts of characters.
        places = np.append(np.flatnonzero(text.view(np.int8) > _CONTINUES), len(text))
        sizes = np.array([len(row) for row in texts], dtype=np.int64)
        shifts = np.repeat(np.searchsorted(places, np.cumsum(sizes) - sizes), counts)
        starts, ends = (
            places[np.concatenate(rows[column]) + shifts] for column in ("subword_starts", "subword_ends")
        )
        if len(starts):
            numbers = np.arange(len(starts))
            is_byte = self._is_byte[np.concatenate(rows["subword_ids"])]
            begins = np.append(True, starts[1:] != starts[:-1])
            # Earlier bytes of the same character.
            later = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
            starts = np.where(is_byte, np.minimum(starts + later, ends - 1), starts)
            ends = np.where(is_byte, starts + 1, np.minimum(ends, starts + MAX_WORD_BYTES))
        return Words(text, counts, starts, ends)

    def pieces(self, rows: Rows, words: Words, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate(rows["subword_ids"])[numbers].astype(np.int64), np.ones(
            len(numbers), dtype=np.int64
        )
