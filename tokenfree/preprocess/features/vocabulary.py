"""Subwords with exact offsets, at the speed of SentencePiece without offsets; and training of the vocabulary."""

import functools
import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import sentencepiece

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.features.sentencepiece_file import (
    BPE,
    BYTE,
    NO_MODEL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    ModelFile,
    read_model,
)
from tokenfree.preprocess.features.vocabulary_training import train_vocabulary
from tokenfree.preprocess.text.characters import SPACE, class_table, codepoints_of

__all__ = ["MAX_TEXT_CHARACTERS", "Encoding", "FlatEncoding", "Vocabulary", "train_vocabulary"]

MAX_TEXT_CHARACTERS = 65_535  # offsets are uint16
_SPACE_MARK = "▁"  # what SentencePiece makes of U+0020
_SPACE_BYTES = ["<0xE2>", "<0x96>", "<0x81>"]  # the same where no piece holds it


class Encoding(NamedTuple):
    """The subwords of one text: ids int32 [n], and uint16 [n] codepoint offsets of the visible part of each."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class FlatEncoding(NamedTuple):
    """The subwords of many texts end to end: ids int32 [n], starts and ends uint16 [n], as in `Encoding`.

    Those of text i are `offsets[i]:offsets[i + 1]` (int64 [texts + 1]).
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray


class Vocabulary:
    """A SentencePiece model whose pieces come with exact codepoint offsets. Picklable; one per process is enough.

    Offsets are rebuilt from the lengths of the pieces, which is exact for models without normalisation, such as
    `train_vocabulary` makes. Texts for which it would not be (any text, for a model that normalises) go through
    SentencePiece's own offsets, exact too, at about a quarter of the speed.

    Kudo, Richardson, "SentencePiece: A simple and language independent subword tokenizer and detokenizer for Neural
    Text Processing", https://arxiv.org/abs/1808.06226.

    Raises:
        UserError: the bytes are no SentencePiece model.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.sha256 = hashlib.sha256(model).hexdigest()
        file = read_model(model)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:  # one of its own checks
            raise UserError(NO_MODEL) from error
        self._pieces = file.pieces
        self.size = len(file.pieces)
        kinds = np.array(file.kinds)
        self._is_byte = kinds == BYTE
        self._unknown_id = file.kinds.index(UNKNOWN)
        self._lengths = _count_characters(file)
        self._rare = _find_rare_characters(file)
        self._keeps_text = not file.normalizes and not file.removes_spaces
        self._prefix = int(file.adds_space and not file.spaces_trail)
        self._suffix = int(file.adds_space and file.spaces_trail)

    @classmethod
    def load(cls, model: bytes) -> "Vocabulary":
        """From the bytes of a SentencePiece model; the same object for the same bytes, so a process loads them once.

        Raises:
            UserError: they are no SentencePiece model.
        """
        return _loaded(model)

    def __reduce__(self) -> tuple[type["Vocabulary"], tuple[bytes]]:
        return Vocabulary, (self.model,)

    def pieces(self) -> list[str]:
        """The pieces in the order of their ids, with "▁" for a space."""
        return list(self._pieces)

    def num_byte_pieces(self, ids: np.ndarray) -> int:
        """How many of `ids` are bytes of characters that the vocabulary lacks."""
        return int(np.count_nonzero(self._is_byte[ids]))

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """The subwords of each text of at most 65,535 characters.

        Starts and ends are codepoint offsets of the piece without white space at either end. Pieces of white space
        alone are left out; byte-fallback pieces all have the span of their character; a run of unknown characters is
        one piece. Newlines count as spaces, so that none stands inside a piece.

        Raises:
            ValueError: a text is longer.
        """
        flat = self.encode_flat(texts)
        bounds = flat.offsets.tolist()
        return [
            Encoding(flat.ids[start:end], flat.starts[start:end], flat.ends[start:end])
            for start, end in pairwise(bounds)
        ]

    def encode_flat(self, texts: Sequence[str]) -> FlatEncoding:
        """`encode_batch` in four arrays.

        Raises:
            ValueError: a text is longer than 65,535 characters.
        """
        sizes = np.array([len(text) for text in texts], dtype=np.int64)
        if len(texts) and sizes.max() > MAX_TEXT_CHARACTERS:
            raise ValueError(f"a text of {sizes.max()} characters; subword offsets reach {MAX_TEXT_CHARACTERS}")
        codepoints = codepoints_of("".join(texts))
        spaced = [text.replace("\n", " ") for text in texts]
        rows = self._processor.encode(spaced, return_type="numpy", num_threads=1) if spaced else []
        bases = _cumulate(sizes)
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        offsets = _cumulate(np.array([len(row) for row in rows], dtype=np.int64))
        starts, ends, exact = self._spans(ids, offsets, bases, codepoints)
        if not exact.all():
            parts = [
                (ids[a:b], starts[a:b], ends[a:b]) if exact[row] else self._exact_spans(spaced[row], int(bases[row]))
                for row, (a, b) in enumerate(pairwise(offsets))
            ]
            ids, starts, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
            offsets = _cumulate(np.array([len(part[0]) for part in parts], dtype=np.int64))
        return _visible(FlatEncoding(ids, starts, ends, offsets), bases, codepoints)

    def _spans(
        self, ids: np.ndarray, offsets: np.ndarray, bases: np.ndarray, codepoints: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts and ends of all pieces in the joined texts, and for which texts they are exact (bool [texts])."""
        lengths = self._lengths[ids]
        sizes, counts = np.diff(bases), np.diff(offsets)
        exact = np.full(len(sizes), self._keeps_text)
        unknown = np.flatnonzero(ids == self._unknown_id)
        if len(unknown):
            exact &= self._measure_unknown(unknown, lengths, offsets, bases, codepoints)
        ends = _cumulate(lengths)
        exact &= ends[offsets[1:]] - ends[offsets[:-1]] == sizes + (sizes > 0) * (self._prefix + self._suffix)
        shifts = np.repeat(bases[:-1] - ends[offsets[:-1]] - self._prefix, counts)
        starts, ends = ends[:-1] + shifts, ends[1:] + shifts
        starts -= (lengths == 0) & self._is_byte[ids]  # the second to fourth byte of the character before
        # The space that SentencePiece adds lies outside the text, whether it is a piece, part of one, or three bytes.
        starts = np.maximum(starts, np.repeat(bases[:-1], counts))
        ends = np.minimum(ends, np.repeat(bases[1:], counts))
        return starts, ends, exact

    def _measure_unknown(
        self, unknown: np.ndarray, lengths: np.ndarray, offsets: np.ndarray, bases: np.ndarray, codepoints: np.ndarray
    ) -> np.ndarray:
        """Set the lengths of unknown pieces: they are the runs of characters that no piece holds, in order."""
        num_texts = len(bases) - 1
        in_text = np.searchsorted(offsets, unknown, side="right") - 1
        if self._rare is None:
            exact = np.ones(num_texts, dtype=bool)
            exact[in_text] = False
            return exact
        rare = self._rare[codepoints]
        begins = rare.copy()
        begins[1:] &= ~rare[:-1]
        borders = bases[:-1][bases[:-1] < len(rare)]
        begins[borders] = rare[borders]  # runs end with their text
        begins = np.flatnonzero(begins)
        run_text = np.searchsorted(bases, begins, side="right") - 1
        run_sizes = np.add.reduceat(rare, begins, dtype=np.int64) if len(begins) else np.zeros(0, dtype=np.int64)
        exact = np.bincount(in_text, minlength=num_texts) == np.bincount(run_text, minlength=num_texts)
        lengths[unknown[exact[in_text]]] = run_sizes[exact[run_text]]
        return exact

    def _exact_spans(self, text: str, base: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids, starts and ends of one text, from SentencePiece's own offsets, which are codepoints here."""
        mapping = self._processor.encode(text, return_type="offset_mapping")
        ids = np.array(mapping["ids"], dtype=np.int32)
        spans = np.array(mapping["offsets"], dtype=np.int64).reshape(-1, 2)
        # Only the last byte of a character has a width there; the space that SentencePiece adds has none in all three.
        has_none = self._is_byte[ids] & (spans[:, 0] == spans[:, 1])
        if [self._pieces[id] for id in ids[:3]] == _SPACE_BYTES and has_none[:3].all():
            has_none[:3] = False
        spans[:, 1] = np.minimum(spans[:, 1] + has_none, len(text))
        return ids, spans[:, 0] + base, spans[:, 1] + base


@functools.lru_cache(maxsize=2)
def _loaded(model: bytes) -> Vocabulary:
    return Vocabulary(model)


def _count_characters(file: ModelFile) -> np.ndarray:
    """Characters that each piece takes from the text, int64 [size]: a byte piece one if it starts a character."""
    return np.array(
        [
            len(piece) if kind != BYTE else int(int(piece[1:-1], 16) & 0xC0 != 0x80)
            for piece, kind in zip(file.pieces, file.kinds, strict=True)
        ],
        dtype=np.int64,
    )


def _find_rare_characters(file: ModelFile) -> np.ndarray | None:
    """For each codepoint whether no piece holds it; None where a piece holds one that is not a piece by itself.

    Models trained by SentencePiece have a piece for each character of any piece, so that a character is unknown
    everywhere or nowhere.
    """
    pieces = [piece for piece, kind in zip(file.pieces, file.kinds, strict=True) if kind == NORMAL]
    single = {piece for piece in pieces if len(piece) == 1}
    known_by_parts = set("".join(pieces)) <= single and USER_DEFINED not in file.kinds
    if not known_by_parts or file.algorithm not in (UNIGRAM, BPE):
        return None
    rare = np.ones(len(class_table()), dtype=bool)
    rare[[ord(character) for character in single]] = False
    rare[ord(" ")] = rare[ord("\n")] = rare[ord(_SPACE_MARK)]
    return rare


def _cumulate(counts: np.ndarray) -> np.ndarray:
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _visible(flat: FlatEncoding, bases: np.ndarray, codepoints: np.ndarray) -> FlatEncoding:
    """Spans without white space at either end, relative to their text; pieces of white space alone left out."""
    ids, starts, ends, offsets = flat
    space = np.zeros(len(codepoints) + 1, dtype=bool)  # one more, for empty spans behind the last character
    np.equal(class_table()[codepoints], SPACE, out=space[:-1])
    leading = np.flatnonzero(space[starts] & (starts < ends))
    while len(leading):
        starts[leading] += 1
        leading = leading[space[starts[leading]] & (starts[leading] < ends[leading])]
    trailing = np.flatnonzero(space[ends - 1] & (starts < ends))
    while len(trailing):  # every piece left here has a visible character, so that this ends
        ends[trailing] -= 1
        trailing = trailing[space[ends[trailing] - 1]]
    kept = starts < ends
    starts -= np.repeat(bases[:-1], np.diff(offsets))
    ends -= np.repeat(bases[:-1], np.diff(offsets))
    offsets = _cumulate(kept)[offsets]
    return FlatEncoding(ids[kept], starts[kept].astype(np.uint16), ends[kept].astype(np.uint16), offsets)
