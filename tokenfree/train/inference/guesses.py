"""Masked-token predictions, one function for each kind of masking in training.

R rows (possible maskings of one piece), V symbols
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
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.characters import frame
from tokenfree.train.batches.subwords import predictable
from tokenfree.train.tasks.inputs import TextInputs, TextSymbols, joined

MARK = re.compile(r"\[MASK(?::([0-9]+))?\]")
LONGEST = 12  # maximum characters of a masked piece whose length is not given
_DIGITS = 6  # maximum digits of a given number of characters
_LONGEST_WORD = 8  # maximum characters of a masked word that is predicted character by character
_OTHER = 4  # assumed characters of a mask of unknown length while another one is predicted
_MOST_PIECES = 3  # maximum subwords of a masked word
_SPACE = "\u2581"
Scored = list[tuple[str, float]]  # texts with their log-probabilities
Score = Callable[[Arrays], Tensor]  # the log-probabilities [R, V] of the single target of each row


class MaskedText(NamedTuple):
    """A text split at its masks, into one more part than masks. `sizes` are the characters of each mask, if given."""

    parts: tuple[str, ...]
    sizes: tuple[int | None, ...]

    def begins_word(self, number: int) -> bool:
        """Return True if a mask follows white space or begins the text."""
        before = self.parts[number]
        return before[-1].isspace() if before else number == 0


def read_masked_text(text: str) -> MaskedText:
    """Split a text at its masks, `[MASK]` or `[MASK:5]`. Raises UserError if it has none or one of a wrong size."""
    split = MARK.split(text)
    parts, sizes = split[::2], split[1::2]
    if not sizes:
        raise UserError(f"{text[:60]!r} has no [MASK]. Put one where something is to be predicted.")
    for size in sizes:
        if size is not None and (not size.strip("0") or len(size) > _DIGITS):
            wrong = "more characters than any model reads" if size.strip("0") else "nothing"
            raise UserError(f"[MASK:{size[:20]}] hides {wrong}. Give the number of its characters, or only [MASK].")
    return MaskedText(tuple(parts), tuple(None if size is None else int(size) for size in sizes))


class Guess(NamedTuple):
    """A predicted text for a mask, and its probability."""

    text: str
    probability: float


def best(found: Iterable[tuple[str, float]], top: int) -> list[Guess]:
    """Return the most likely texts. Probabilities of equal texts are added."""
    total: dict[str, float] = {}
    for text, score in found:
        total[text] = total.get(text, 0.0) + float(np.exp(score))
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [Guess(text, value) for text, value in ranked[:top]]


def _character_rows(
    text: MaskedText, number: int, sizes: Sequence[int], length: int, room: int
) -> tuple[Arrays, np.ndarray]:
    """Return a row for each possible size of mask `number`, and the position where the mask begins, int64 [R]."""
    windows, places = [], []
    for size in sizes:
        hidden = [size if at == number else own or _OTHER for at, own in enumerate(text.sizes)]
        total = sum(map(len, text.parts)) + sum(hidden)
        if total > room:
            raise _too_long(f"{total} characters", f"{room}")
        line = [ord(character) for character in text.parts[0]]
        for at, (count, part) in enumerate(zip(hidden, text.parts[1:], strict=True)):
            if at == number:
                places.append(len(line) + 1)
            line += [MASK] * count
            line += map(ord, part)
        windows.append(np.array(line, dtype=np.int64))
    ends = np.array([len(window) for window in windows])
    codepoints, mask = frame(windows, np.zeros_like(ends), ends, length)
    return {"codepoints": codepoints, "mask": mask}, np.array(places)


def _too_long(has: str, reads: str) -> UserError:
    return UserError(f"the text has {has} and this model reads {reads}. Shorten it.")


def _one_target(arrays: Mapping[str, np.ndarray], positions: np.ndarray) -> Arrays:
    """Return `arrays` with one target per row, at `positions`, int64 [R] or, for words, [R, 2]."""
    rows = len(positions)
    return {
        **arrays,
        "target_positions": positions[:, None],
        "target_ids": np.zeros((rows, 1), dtype=np.int64),
        "target_mask": np.ones((rows, 1), dtype=bool),
    }


def guess_subword_by_characters(
    text: MaskedText, number: int, pieces: Sequence[str], score: Score, *, length: int, room: int
) -> Scored:
    """Predict as CANINE-S: subwords of as many characters as MASKs. Without a given length, all have equal weight."""
    given = text.sizes[number]
    sizes = [given] if given else list(range(1, LONGEST + 1))
    arrays, places = _character_rows(text, number, sizes, length, room)
    scores = score(_one_target(arrays, places)).numpy()
    usable = predictable(pieces)
    begins = text.begins_word(number)
    found = []
    for id_, piece in enumerate(pieces):
        visible = piece.strip(_SPACE).replace(_SPACE, " ")
        if usable[id_] and piece.startswith(_SPACE) == begins and len(visible) in sizes:
            found.append((visible, float(scores[sizes.index(len(visible)), id_]) - float(np.log(len(sizes)))))
    return found


def guess_subword(text: MaskedText, number: int, vocabulary: Vocabulary, score: Score, *, length: int) -> Scored:
    """Predict as a subword BERT: any subword. Those that begin a word start with the space symbol, "\u2581"."""
    pieces, specials = vocabulary.pieces(), of_subwords(vocabulary.size)
    num_characters = sum(map(len, text.parts)) + len(text.sizes)
    if num_characters > MAX_TEXT_CHARACTERS:
        raise _too_long(f"{num_characters} characters", f"{length - 2} subwords")
    # Encode the whole text with one character per mask, because a separate part would begin with an extra space.
    flat = vocabulary.encode_flat([chr(MASK).join(text.parts)])
    lengths = np.array([len(part) for part in text.parts[:-1]])
    marks = np.cumsum(lengths + 1) - 1
    before, after = (np.searchsorted(marks, edges, side="left") for edges in (flat.starts, flat.ends))
    ids, place, last = [specials.cls], 0, -1
    for mark, is_mark, id_ in zip(before.tolist(), (after > before).tolist(), flat.ids.tolist(), strict=True):
        if not is_mark:
            ids.append(id_)
        elif ids[-1] != specials.mask or mark != last:  # several byte pieces may encode one mask character
            place, last = len(ids) if mark == number else place, mark
            ids.append(specials.mask)
    ids.append(specials.sep)
    if len(ids) > length:
        raise _too_long(f"{len(ids) - 2} subwords", f"{length - 2}")
    codepoints = np.zeros((1, length), dtype=np.int64)
    codepoints[0, : len(ids)] = ids
    arrays = {"codepoints": codepoints, "mask": np.arange(length)[None] < len(ids)}
    scores = score(_one_target(arrays, np.array([place])))[0].tolist()
    return [(pieces[id_], scores[id_]) for id_ in np.flatnonzero(predictable(pieces)).tolist()]


def guess_word(text: MaskedText, number: int, pieces: Sequence[str], score: Score, *, inputs: TextInputs) -> Scored:
    """Predict as Byte2Word: words of one to three subwords, with equal weight. Subwords are predicted independently."""
    num_visible = sum(len(part) - sum(map(part.count, " \t\n")) for part in text.parts)
    if num_visible > inputs.length:  # each takes at least one byte
        raise _too_long(f"{num_visible} characters", f"{inputs.length} bytes")
    mask = TextSymbols(np.array([BYTE_MASK]), np.array([0]), np.array([1]))
    parts = [inputs.encode(text.parts[0])]
    for part in text.parts[1:]:
        parts += [mask, inputs.encode(part)]
    row = joined(parts)
    if inputs.missing([row]):
        has = f"{row.num_vectors} words of {len(row.symbols)} bytes"
        raise _too_long(has, f"{inputs.length} bytes, or fewer in many short words")
    hidden = sum(part.num_vectors for part in parts[: 2 * number + 1])
    rows = {name: np.repeat(values, _MOST_PIECES, axis=0) for name, values in inputs.arrays([[row]]).items()}
    slots = np.arange(_MOST_PIECES)
    scores = score(_one_target(rows, np.stack([np.full(_MOST_PIECES, hidden + 1), slots], axis=1))).numpy()
    usable = predictable(pieces)
    begins = np.array([piece.startswith(_SPACE) for piece in pieces])
    found, front = [], [("", 0.0)]
    for slot in slots.tolist():
        allowed = np.flatnonzero(usable & (begins == (slot == 0)))
        likely = allowed[np.argsort(-scores[slot, allowed])[:LONGEST]]
        more = [(pieces[int(id_)].strip(_SPACE), float(scores[slot, id_])) for id_ in likely]
        front = _widest([(word + piece, so_far + value) for word, so_far in front for piece, value in more], LONGEST)
        found += [(word, so_far - float(np.log(_MOST_PIECES))) for word, so_far in front]
    return found


def _widest(front: Scored, width: int) -> Scored:
    return sorted(front, key=lambda item: -item[1])[:width]


def guess_characters(
    text: MaskedText,
    number: int,
    score: Callable[[Mapping[str, np.ndarray], int], Tensor],
    *,
    characters: Sequence[int],
    length: int,
    room: int,
    width: int = LONGEST,
) -> Scored:
    """Predict as models of characters: spell words from left to right by beam search with `width` beams.

    If the mask has no length, all lengths up to eight are tried with equal weight. `score` returns the
    log-probabilities of a target by its number, [R, V], given all targets before it. `characters` holds the character
    of each class.
    """
    given = text.sizes[number]
    sizes = [given] if given else list(range(1, _LONGEST_WORD + 1))
    found = []
    for size in sizes:
        arrays, (place,) = _character_rows(text, number, [size], length, room)
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
            longer = [
                (word + chr(characters[symbol]), so_far + value)
                for (word, so_far), *row in rows
                for value, symbol in zip(*row, strict=True)
                if chr(characters[symbol]).isprintable() and not chr(characters[symbol]).isspace()
            ]
            front = _widest(longer, width)
        found += [(word, so_far - float(np.log(len(sizes)))) for word, so_far in front]
    return found
