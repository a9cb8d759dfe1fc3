"""Predictions for the hidden pieces of a text, for each way of hiding used in training.

R rows (ways in which a piece may be hidden), V symbols
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.preprocess.features.vocabulary import MAX_TEXT_CHARACTERS, Vocabulary
from tokenfree.preprocess.text.specials import BYTE_MASK, MASK, of_subwords
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.characters import frame
from tokenfree.train.batches.subwords import predictable
from tokenfree.train.batches.words import NUM_FRAME, frame_words

MARK = re.compile(r"\[MASK(?::([0-9]+))?\]")
_DIGITS = 6  # of the largest number of characters


class MaskedText(NamedTuple):
    """The text between the marks, one part more than there are marks; `sizes`: the characters of each, if told."""

    parts: tuple[str, ...]
    sizes: tuple[int | None, ...]

    def begins_word(self, number: int) -> bool:
        """Whether white space or nothing stands before a mark."""
        before = self.parts[number]
        return before[-1].isspace() if before else number == 0


def read_masked_text(text: str) -> MaskedText:
    """Part a text at its marks: `[MASK]`, or `[MASK:5]` for five characters.

    Raises:
        UserError: it has none, or one of no character or of more than any model reads.
    """
    split = MARK.split(text)
    parts, sizes = split[::2], split[1::2]
    if not sizes:
        raise UserError(f"{text[:60]!r} has no [MASK]; put one where something is to be guessed")
    for size in sizes:
        if size is not None and not size.strip("0"):
            raise UserError(f"[MASK:{size[:20]}] hides nothing; give the number of its characters, or only [MASK]")
        if size is not None and len(size) > _DIGITS:
            said = f"[MASK:{size[:20]}] hides more characters than any model reads"
            raise UserError(f"{said}; give the number of its characters, or only [MASK]")
    return MaskedText(tuple(parts), tuple(None if size is None else int(size) for size in sizes))


LONGEST = 12  # characters of a hidden piece whose length is not told
_LONGEST_WORD = 8  # of a hidden word that is spelled character by character
_OTHER = 4  # characters for a mark of unknown length while another one is guessed
_MOST_PIECES = 3  # subwords of a hidden word
_SPACE = "\u2581"

Score = Callable[[Arrays], Tensor]  # the log-probabilities [R, V] of the one target of each row


class Guess(NamedTuple):
    """What may stand in the place of a mark, and how likely the model finds it."""

    text: str
    probability: float


def best(found: Iterable[tuple[str, float]], top: int) -> list[Guess]:
    """The most likely of (text, log-probability); of equal texts they add up."""
    total: dict[str, float] = {}
    for text, score in found:
        total[text] = total.get(text, 0.0) + float(np.exp(score))
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [Guess(text, value) for text, value in ranked[:top]]


class CharacterText:
    """A text as characters, each mark as so many MASKs."""

    def __init__(self, text: MaskedText, length: int, room: int) -> None:
        self._text, self._length, self._room = text, length, room

    def rows(self, number: int, sizes: Sequence[int]) -> tuple[Arrays, np.ndarray]:
        """A row for each of `sizes`, the characters that mark `number` hides; and where it begins, int64 [R].

        Raises:
            UserError: the text is too long for the model.
        """
        windows, places = [], []
        for size in sizes:
            hidden = sum(self._text.sizes[at] or _OTHER for at in range(len(self._text.sizes)) if at != number)
            total = sum(map(len, self._text.parts)) + hidden + size
            if total > self._room:
                raise UserError(f"the text has {total} characters and this model reads {self._room}; shorten it")
            line: list[int] = []
            for at, part in enumerate(self._text.parts):
                line += map(ord, part)
                if at < len(self._text.sizes):
                    if at == number:
                        places.append(len(line) + 1)
                    line += [MASK] * (size if at == number else self._text.sizes[at] or _OTHER)
            windows.append(np.array(line, dtype=np.int64))
        ends = np.array([len(window) for window in windows])
        codepoints, mask = frame(windows, np.zeros_like(ends), ends, self._length)
        return {"codepoints": codepoints, "mask": mask}, np.array(places)


def one_target(arrays: Arrays, positions: np.ndarray) -> Arrays:
    """`arrays` with one target in each row, at `positions`, int64 [R] or, of words, [R, 2]."""
    rows = len(positions)
    return {
        **arrays,
        "target_positions": positions[:, None],
        "target_ids": np.zeros((rows, 1), dtype=np.int64),
        "target_mask": np.ones((rows, 1), dtype=bool),
    }


def guess_subword_by_characters(
    text: MaskedText, number: int, pieces: Sequence[str], score: Score, *, length: int, room: int
) -> list[tuple[str, float]]:
    """Of CANINE-S: subwords of as many characters as MASKs stand there, that begin a word where one begins.

    Without a length in the mark, all up to `LONGEST` are tried, and count alike.
    """
    told = text.sizes[number]
    sizes = [told] if told else list(range(1, LONGEST + 1))
    arrays, places = CharacterText(text, length, room).rows(number, sizes)
    scores = score(one_target(arrays, places)).numpy()
    usable = predictable(pieces)
    begins = text.begins_word(number)
    found = []
    for id_, piece in enumerate(pieces):
        visible = piece.strip(_SPACE).replace(_SPACE, " ")
        if usable[id_] and piece.startswith(_SPACE) == begins and len(visible) in sizes:
            found.append((visible, float(scores[sizes.index(len(visible)), id_]) - float(np.log(len(sizes)))))
    return found


def guess_subword(
    text: MaskedText, number: int, vocabulary: Vocabulary, score: Score, *, length: int
) -> list[tuple[str, float]]:
    """Of a subword BERT: any subword; those that begin a word are told with the mark of a space, "\u2581".

    Raises:
        UserError: the text is too long for the model.
    """
    pieces, specials = vocabulary.pieces(), of_subwords(vocabulary.size)
    num_characters = sum(map(len, text.parts)) + len(text.sizes)
    if num_characters > MAX_TEXT_CHARACTERS:
        raise UserError(
            f"the text has {num_characters} characters and this model reads {length - 2} subwords; shorten it"
        )
    # In one piece, with a character in the place of each mark: a part alone would begin as a text does, with a space.
    flat = vocabulary.encode_flat([chr(MASK).join(text.parts)])
    lengths = np.array([len(part) for part in text.parts[:-1]])
    marks = np.cumsum(lengths + 1) - 1
    before, after = (np.searchsorted(marks, edges, side="left") for edges in (flat.starts, flat.ends))
    ids, place, last = [specials.cls], 0, -1
    for mark, is_mark, id_ in zip(before.tolist(), (after > before).tolist(), flat.ids.tolist(), strict=True):
        if not is_mark:
            ids.append(id_)
        elif ids[-1] != specials.mask or mark != last:  # several bytes stand for one character
            place, last = len(ids) if mark == number else place, mark
            ids.append(specials.mask)
    ids.append(specials.sep)
    if len(ids) > length:
        raise UserError(f"the text has {len(ids) - 2} subwords and this model reads {length - 2}; shorten it")
    codepoints = np.zeros((1, length), dtype=np.int64)
    codepoints[0, : len(ids)] = ids
    arrays = {"codepoints": codepoints, "mask": np.arange(length)[None] < len(ids)}
    scores = score(one_target(arrays, np.array([place])))[0].tolist()
    return [(pieces[id_], scores[id_]) for id_ in np.flatnonzero(predictable(pieces)).tolist()]


def guess_word(
    text: MaskedText, number: int, pieces: Sequence[str], score: Score, *, length: int, num_words: int
) -> list[tuple[str, float]]:
    """Of Byte2Word: whole words of one to three subwords, each guessed by itself; all three numbers count alike.

    Raises:
        UserError: the text is too long for the model.
    """
    num_visible = sum(len(part) - sum(map(part.count, " \t\n")) for part in text.parts)
    if num_visible > length:  # a byte or more each
        raise UserError(f"the text has {num_visible} characters and this model reads {length} bytes; shorten it")
    words, hidden = [], 0
    for at, part in enumerate(text.parts):
        encoded = part.encode("utf-8", "replace")
        starts, ends = word_spans(part)
        words += [encoded[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        if at < len(text.sizes):
            hidden = len(words) if at == number else hidden
            words.append(bytes([BYTE_MASK]))
    sizes = np.array([len(word) for word in words])
    if len(words) > num_words or sizes.sum() > length - NUM_FRAME:
        raise UserError(
            f"the text has {len(words)} words of {sizes.sum()} bytes and this model reads {num_words} of "
            f"{length - NUM_FRAME}; shorten it"
        )
    joined = np.frombuffer(b"".join(words), dtype=np.uint8)
    framed = frame_words(joined, np.cumsum(sizes) - sizes, sizes, np.array([len(words)]), length, num_words + NUM_FRAME)
    rows = {name: np.repeat(values, _MOST_PIECES, axis=0) for name, values in framed._asdict().items()}
    slots = np.arange(_MOST_PIECES)
    scores = score(one_target(rows, np.stack([np.full(_MOST_PIECES, hidden + 1), slots], axis=1))).numpy()
    usable = predictable(pieces)
    begins = np.array([piece.startswith(_SPACE) for piece in pieces])
    found, front = [], [("", 0.0)]
    for slot in slots.tolist():
        allowed = np.flatnonzero(usable & (begins == (slot == 0)))
        likely = allowed[np.argsort(-scores[slot, allowed])[:LONGEST]]
        more = [(pieces[int(id_)].strip(_SPACE), float(scores[slot, id_])) for id_ in likely]
        front = [(word + piece, so_far + value) for word, so_far in front for piece, value in more]
        front = sorted(front, key=lambda item: -item[1])[:LONGEST]
        found += [(word, so_far - float(np.log(_MOST_PIECES))) for word, so_far in front]
    return found


def guess_characters(
    text: MaskedText,
    number: int,
    score: Callable[[Mapping[str, np.ndarray], int], Tensor],
    *,
    characters: Sequence[int],
    length: int,
    room: int,
    width: int = LONGEST,
) -> list[tuple[str, float]]:
    """Of models of characters: words spelled from left to right, the `width` best beginnings kept at each character.

    Without a length in the mark, all up to eight are tried, and count alike.

    Args:
        score: of a batch with targets, and the number of one: its log-probabilities [R, V], with all before it known.
        characters: the one that each class stands for.
    """
    told = text.sizes[number]
    sizes = [told] if told else list(range(1, _LONGEST_WORD + 1))
    found = []
    for size in sizes:
        arrays, (place,) = CharacterText(text, length, room).rows(number, [size])
        front = [("", 0.0)]
        for at in range(size):
            known = np.zeros((len(front), size), dtype=np.int64)
            for row, (word, _) in enumerate(front):
                known[row, :at] = [ord(character) for character in word]
            batch = {name: np.repeat(values, len(front), axis=0) for name, values in arrays.items()}
            batch |= {
                "target_positions": np.repeat(np.arange(place, place + size)[None], len(front), axis=0),
                "target_codepoints": known,
                "target_ids": known,
                "target_mask": np.ones_like(known, dtype=bool),
            }
            scores_RV = score(batch, at)
            values, classes = torch.topk(scores_RV, min(width, scores_RV.shape[-1]))
            rows = zip(front, values.tolist(), classes.tolist(), strict=True)
            front = [
                (word + chr(characters[symbol]), so_far + value)
                for (word, so_far), *row in rows
                for value, symbol in zip(*row, strict=True)
                if chr(characters[symbol]).isprintable() and not chr(characters[symbol]).isspace()
            ]
            front = sorted(front, key=lambda item: -item[1])[:width]
        found += [(word, so_far - float(np.log(len(sizes)))) for word, so_far in front]
    return found
