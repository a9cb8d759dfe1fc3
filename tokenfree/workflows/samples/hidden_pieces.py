"""Pieces of held-out windows to hide from a trained model, a fixed sample, and what it guesses for them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.text.characters import byte_offsets, codepoints_of
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.subwords import predictable
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.data.validation import VALIDATION_SEED
from tokenfree.train.inference.guesses import LONGEST, Guess, MaskedText
from tokenfree.train.inference.predictor import Predictor

TOP = 5
_SUBWORDS = ("canine_s", "masked_subwords")


class HiddenPiece(NamedTuple):
    """A piece of a window with the text around it, and the best guesses for it, the most likely first."""

    window: int  # its number in the validation split
    before: str
    text: str
    after: str
    guesses: list[Guess]
    right: int | None  # which guess is the piece, from 0


class _Piece(NamedTuple):
    """From character `start` to `end` of its window; `answer` is how a right guess is spelled."""

    start: int
    end: int
    answer: str


def hidden_pieces(predictor: Predictor, data: Data, *, num_windows: int = 12) -> list[HiddenPiece]:
    """A piece of each of `num_windows` windows, spaced evenly over the validation split, with the guesses of a model.

    Which piece it is, only the number of the window tells: a subword of the data where the model guesses subwords of
    characters or of its own, else a word of at most 12 characters. All else of the window is visible, or as much of it
    around the piece as the model reads.

    Raises:
        UserError: the data have no validation split, or not the columns.
        JobError: a shard cannot be read.
    """
    reader = ShardReader(data, "validation")
    numbers, shards, rows = reader.spread(num_windows)
    draws = random.uniform(VALIDATION_SEED, "hidden piece", numbers, 1)[:, 0].tolist()
    columns = _columns(predictor)
    found = []
    for at, (number, draw) in enumerate(zip(numbers.tolist(), draws, strict=True)):
        row = {name: values[0] for name, values in reader.rows(columns, shards[at : at + 1], rows[at : at + 1]).items()}
        text = row["text"].tobytes().decode()
        pieces = list(_pieces(predictor, text, row))
        if pieces:
            found.append(_guessed(predictor, number, text, pieces[int(draw * len(pieces))]))
    return found


def _columns(predictor: Predictor) -> tuple[str, ...]:
    subwords = ("subword_ids", "subword_starts", "subword_ends")
    return ("text", *(subwords if predictor.recipe.objective.name in _SUBWORDS else ()))


def _pieces(predictor: Predictor, text: str, row: dict[str, np.ndarray]) -> Iterator[_Piece]:
    """What may be hidden."""
    name = predictor.recipe.objective.name
    if name not in _SUBWORDS:
        offsets = byte_offsets(codepoints_of(text))
        starts, ends = (np.searchsorted(offsets, edges).tolist() for edges in word_spans(text))
        spans = zip(starts, ends, strict=True)
        yield from (_Piece(start, end, text[start:end]) for start, end in spans if end - start <= LONGEST)
        return
    assert predictor.vocabulary is not None
    names = predictor.vocabulary.pieces()
    usable = predictable(names)
    ids, starts, ends = (row[column].tolist() for column in ("subword_ids", "subword_starts", "subword_ends"))
    for id_, start, end in zip(ids, starts, ends, strict=True):
        if usable[id_]:
            yield _Piece(start, end, names[id_] if name == "masked_subwords" else text[start:end])


def _guessed(predictor: Predictor, number: int, text: str, piece: _Piece) -> HiddenPiece:
    guesses = _guesses(predictor, text, piece)
    buckets = getattr(predictor.recipe.objective, "buckets", 0x110000)  # of one class are as good as equal

    def classes(spelled: str) -> list[int]:
        return [ord(character) % buckets for character in spelled]

    right = [rank for rank, guess in enumerate(guesses) if classes(guess.text) == classes(piece.answer)]
    before, after = text[: piece.start], text[piece.end :]
    return HiddenPiece(number, before, text[piece.start : piece.end], after, guesses, right[0] if right else None)


def _guesses(predictor: Predictor, text: str, piece: _Piece) -> list[Guess]:
    """From the widest context, halved as often as it is too wide."""
    told = predictor.recipe.objective.name not in ("masked_subwords", "byte2word")
    reach = len(text)
    while True:
        parts = text[max(piece.start - reach, 0) : piece.start], text[piece.end : piece.end + reach]
        try:
            return predictor.fill(MaskedText(parts, (piece.end - piece.start if told else None,)), TOP)[0]
        except UserError:
            if not reach:
                raise
            reach //= 2
