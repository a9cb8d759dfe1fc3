"""Masked-token predictions of a trained run: `load_predictor("RUN")("The capital of [MASK] is ...")`.

R rows (possible maskings of one piece), V symbols
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.core.storage import Storage
from tokenfree.preprocess.features.vocabulary import MAX_TEXT_CHARACTERS, Vocabulary
from tokenfree.preprocess.text.specials import BYTE_MASK, MASK, of_subwords
from tokenfree.train.batches.base import WORD_START, Arrays, character_capacity, frame, predictable, visible
from tokenfree.train.batches.ngrams import target_ngrams
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import ShardReader, load_data_vocabulary, paths_of
from tokenfree.train.data.validation import frequent_characters
from tokenfree.train.loop.step import on_device, pretraining_task
from tokenfree.train.model.encoder import EncoderOutput
from tokenfree.train.runs.checkpoints import Checkpoint
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.run import checkpoint_of
from tokenfree.train.tasks.inputs import TextSymbols, joined, text_inputs
from tokenfree.train.torch_state import default_settings

MARK = re.compile(r"\[MASK(?::([0-9]+))?\]")
# Maximum characters of a masked piece whose length is not given; also the number of beams.
LONGEST = 12
_DIGITS = 6  # maximum digits of a given number of characters
_LONGEST_WORD = 8  # maximum characters of a masked word that is predicted character by character
_OTHER = 4  # assumed characters of a mask of unknown length while another one is predicted
_MAX_PIECES = 3  # maximum subwords of a masked word
# Windows in which characters are counted.
_WINDOWS = 5000
Scored = list[tuple[str, float]]  # texts with their log-probabilities


class MaskedText(NamedTuple):
    """A text split at its masks, into one more part than masks.

    `sizes` are the characters of each mask, if given.
    """

    parts: tuple[str, ...]
    sizes: tuple[int | None, ...]

    def begins_word(self, number: int) -> bool:
        preceding = self.parts[number]
        return preceding[-1].isspace() if preceding else number == 0


def read_masked_text(text: str) -> MaskedText:
    """Split a text at its masks, `[MASK]` or `[MASK:5]`.

    Raises UserError if it has none or one of a wrong size.
    """
    split = MARK.split(text)
    parts, sizes = split[::2], split[1::2]
    if not sizes:
        raise UserError(f"{text[:60]!r} has no [MASK]. Put one where something is to be predicted.")
    for size in sizes:
        if size is not None and (not size.strip("0") or len(size) > _DIGITS):
            wrong = "more characters than any model reads" if size.strip("0") else "nothing"
            raise UserError(
                f"[MASK:{size[:20]}] hides {wrong}. Give the number of its characters, or only [MASK]."
            )
    return MaskedText(tuple(parts), tuple(None if size is None else int(size) for size in sizes))


class Guess(NamedTuple):
    """A predicted text for a mask, and its probability."""

    text: str
    probability: float


def best(scored: Iterable[tuple[str, float]], top: int) -> list[Guess]:
    """Return the most likely texts. Probabilities of equal texts are added."""
    total: dict[str, float] = {}
    for text, score in scored:
        total[text] = total.get(text, 0.0) + float(np.exp(score))
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [Guess(text, value) for text, value in ranked[:top]]


class Predictor:
    """The encoder and the head of a run, in evaluation mode.

    The `vocabulary` is that of its data. `characters`, int64 [classes], has the character of each class. They
    are None if the objective needs none.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        recipe: PretrainRecipe,
        vocabulary: Vocabulary | None,
        characters: np.ndarray | None,
    ) -> None:
        self.checkpoint, self.recipe, self.vocabulary = checkpoint, recipe, vocabulary
        self._characters = characters
        self._length = recipe.train.length
        self._model = checkpoint.built(
            lambda: pretraining_task(recipe, 0 if vocabulary is None else vocabulary.size),
            checkpoint.weights(),
        )

    def __repr__(self) -> str:
        return f"Predictor(objective={self.recipe.objective.name}, step={self.checkpoint.step})"

    @default_settings()
    def __call__(self, text: str | MaskedText, top: int = 5) -> list[list[Guess]]:
        """Return the `top` predictions for each mask of `text`, `[MASK]` or `[MASK:5]`, while the others stay masked.

        Raises UserError if the text has no mask, or it is longer than the model reads.
        """
        split = read_masked_text(text) if isinstance(text, str) else text
        guess = {
            "canine_s": self._subword_by_characters,
            "masked_subwords": self._subword,
            "byte2word": self._word,
            "canine_c": self._by_characters,
            "masked_characters": self._by_characters,
        }.get(self.recipe.objective.name)
        if guess is None:
            raise UserError(
                f"objective.name: {self.recipe.objective.name} of this run predicts no text. Give another run."
            )
        return [best(guess(split, number), top) for number in range(len(split.sizes))]

    def _subword_by_characters(self, text: MaskedText, number: int) -> Scored:
        """Predict as CANINE-S: subwords of as many characters as MASKs.

        If no length is given, all weigh the same.
        """
        requested_size, pieces = text.sizes[number], self._pieces()
        sizes = [requested_size] if requested_size else list(range(1, LONGEST + 1))
        arrays, places = self._character_rows(text, number, sizes)
        arrays = _one_target(arrays, places)
        if self.recipe.model.neighbours.name != "none":
            arrays["target_ngrams"] = target_ngrams(arrays)
        scores = self._score(arrays).numpy()
        usable = predictable(pieces)
        begins = text.begins_word(number)
        texts = enumerate(zip(pieces, map(visible, pieces), strict=True))
        return [
            (text_of, float(scores[sizes.index(len(text_of)), id_]) - float(np.log(len(sizes))))
            for id_, (piece, text_of) in texts
            if usable[id_] and piece.startswith(WORD_START) == begins and len(text_of) in sizes
        ]

    def _subword(self, text: MaskedText, number: int) -> Scored:
        """Predict as a subword BERT: any subword.

        Those that begin a word start with the space symbol, "\u2581".
        """
        vocabulary, length = self.vocabulary, self._length
        assert vocabulary is not None
        pieces, specials = vocabulary.pieces, of_subwords(vocabulary.size)
        num_characters = sum(map(len, text.parts)) + len(text.sizes)
        if num_characters > MAX_TEXT_CHARACTERS:
            raise _too_long(f"{num_characters} characters", f"{length - 2} subwords")
        # Encode the whole text with one character per mask, because a separate part would begin with an extra
        # space.
        flat = vocabulary.encode_flat([chr(MASK).join(text.parts)])
        marks = np.cumsum([len(part) + 1 for part in text.parts[:-1]]) - 1
        first_mark, end_mark = (
            np.searchsorted(marks, edges, side="left") for edges in (flat.starts, flat.ends)
        )
        ids, place, last = [specials.cls], 0, -1
        for mark, is_mark, id_ in zip(
            first_mark.tolist(), (end_mark > first_mark).tolist(), flat.ids.tolist(), strict=True
        ):
            if not is_mark:
                ids.append(id_)
            # Several byte pieces may encode one mask character.
            elif ids[-1] != specials.mask or mark != last:
                place, last = len(ids) if mark == number else place, mark
                ids.append(specials.mask)
        ids.append(specials.sep)
        if len(ids) > length:
            raise _too_long(f"{len(ids) - 2} subwords", f"{length - 2}")
        codepoints = np.zeros((1, length), dtype=np.int64)
        codepoints[0, : len(ids)] = ids
        arrays = {"codepoints": codepoints, "mask": np.arange(length)[None] < len(ids)}
        scores = self._score(_one_target(arrays, np.array([place])))[0].tolist()
        return [(pieces[id_], scores[id_]) for id_ in np.flatnonzero(predictable(pieces)).tolist()]

    def _word(self, text: MaskedText, number: int) -> Scored:
        """Predict as Byte2Word: words of one to three independent subwords, with equal weight for each number."""
        inputs, pieces = text_inputs(self.recipe.model, self._length, None), self._pieces()
        num_visible = sum(len(part) - sum(map(part.count, " \t\n")) for part in text.parts)
        # Each takes at least one byte.
        if num_visible > inputs.length:
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
        rows = {
            name: np.repeat(values, _MAX_PIECES, axis=0) for name, values in inputs.arrays([[row]]).items()
        }
        slots = np.arange(_MAX_PIECES)
        scores = self._score(
            _one_target(rows, np.stack([np.full(_MAX_PIECES, hidden + 1), slots], axis=1))
        ).numpy()
        usable = predictable(pieces)
        begins = np.array([piece.startswith(WORD_START) for piece in pieces])
        scored, front = [], [("", 0.0)]
        for slot in slots.tolist():
            allowed = np.flatnonzero(usable & (begins == (slot == 0)))
            likely = allowed[np.argsort(-scores[slot, allowed])[:LONGEST]]
            more = [(pieces[int(id_)].strip(WORD_START), float(scores[slot, id_])) for id_ in likely]
            front = _widest(
                [(word + piece, so_far + value) for word, so_far in front for piece, value in more]
            )
            scored += [(word, so_far - float(np.log(_MAX_PIECES))) for word, so_far in front]
        return scored

    def _by_characters(self, text: MaskedText, number: int) -> Scored:
        """Predict as models of characters: spell words from left to right by beam search.

        If the mask has no length, all lengths up to eight are tried with equal weight.
        """
        assert self._characters is not None
        characters = self._characters.tolist()
        requested_size = text.sizes[number]
        sizes = [requested_size] if requested_size else list(range(1, _LONGEST_WORD + 1))
        scored = []
        for size in sizes:
            arrays, (place,) = self._character_rows(text, number, [size])
            front = [("", 0.0)]
            for at in range(size):
                prefixes = np.zeros((len(front), size), dtype=np.int64)
                for row, (word, _) in enumerate(front):
                    prefixes[row, :at] = [ord(character) for character in word]
                batch = {name: np.repeat(values, len(front), axis=0) for name, values in arrays.items()}
                batch |= {
                    "target_positions": np.repeat(np.arange(place, place + size)[None], len(front), axis=0),
                    "target_codepoints": prefixes,
                    "target_ids": prefixes,
                    "target_mask": np.ones_like(prefixes, dtype=bool),
                }
                scores_RV = self._score(batch, _OneText(self._model.encoder)).unflatten(0, (len(front), -1))[
                    :, at
                ]
                values, classes = torch.topk(scores_RV, min(LONGEST, scores_RV.shape[-1]))
                rows = zip(front, values.tolist(), classes.tolist(), strict=True)
                longer = [
                    (word + chr(characters[symbol]), so_far + value)
                    for (word, so_far), *row in rows
                    for value, symbol in zip(*row, strict=True)
                    if chr(characters[symbol]).isprintable() and not chr(characters[symbol]).isspace()
                ]
                front = _widest(longer)
                # Every likely character is unprintable.
                if not front:
                    break
            scored += [(word, so_far - float(np.log(len(sizes)))) for word, so_far in front]
        return scored

    def _character_rows(
        self, text: MaskedText, number: int, sizes: Sequence[int]
    ) -> tuple[Arrays, np.ndarray]:
        """Return a row for each possible size of mask `number`, and the position where the mask begins, int64 [R]."""
        windows, places = [], []
        room = character_capacity(self._length, self.recipe.objective.spare)
        for size in sizes:
            hidden = [
                size if at == number else other_size or _OTHER for at, other_size in enumerate(text.sizes)
            ]
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
        codepoints, mask = frame(windows, np.zeros_like(ends), ends, self._length)
        return {"codepoints": codepoints, "mask": mask}, np.array(places)

    def _pieces(self) -> list[str]:
        assert self.vocabulary is not None
        return self.vocabulary.pieces

    @torch.no_grad()
    def _score(self, arrays: Arrays, encoder: Any = None) -> Tensor:
        """Return the log-probabilities of the symbols at each target, float32 [targets, V]."""
        encoder = self._model.encoder if encoder is None else encoder
        batch = on_device(arrays, torch.device("cpu"))
        return self._model.head.target_logits(encoder, batch).float().log_softmax(dim=-1)


def _too_long(has: str, reads: str) -> UserError:
    return UserError(f"the text has {has} and this model reads {reads}. Shorten it.")


def _one_target(arrays: Arrays, positions: np.ndarray) -> Arrays:
    """Return `arrays` with one target per row, at `positions`, int64 [R] or, for words, [R, 2]."""
    rows = len(positions)
    return {
        **arrays,
        "target_positions": positions[:, None],
        "target_ids": np.zeros((rows, 1), dtype=np.int64),
        "target_mask": np.ones((rows, 1), dtype=bool),
    }


def _widest(front: Scored) -> Scored:
    return sorted(front, key=lambda item: -item[1])[:LONGEST]


class _OneText:
    """An encoder for batches whose rows differ only in the known targets. It encodes only the first row."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def __call__(self, codepoints: Tensor, mask: Tensor, *, targets_BP: Tensor) -> EncoderOutput:
        out = self._encoder(codepoints[:1], mask[:1], targets_BP=targets_BP[:1])
        return EncoderOutput(*(part.expand(len(codepoints), *part.shape[1:]) for part in out))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


@default_settings()
def load_predictor(
    run: AnyPath, data: AnyPath | None = None, *, step: int | None = None, trust_code: bool = False
) -> Predictor:
    """Return the predictor of a run, with averaged weights if the run has them. `checkpoint_of` chooses the checkpoint.

    Args:
        run: Path or address of the run.
        data: Data directory with the vocabulary, by default that of the run.
        step: Step of the checkpoint to use instead.
        trust_code: Whether to run code outside tokenfree that the run names.

    Raises UserError if there is no such run, it was imported (and has no head), or its vocabulary is missing,
    and JobError if the checkpoint is damaged.
    """
    config = read_config(run, trust_code=trust_code)
    if not config.manifest:
        raise UserError(
            f"{run} was {config.data}: an encoder without the head that predicts. Train it with --init-from."
        )
    return predictor_of(
        checkpoint_of(run, step), config.recipe, config.data if data is None else expand_home(data)
    )


def predictor_of(checkpoint: Checkpoint, recipe: PretrainRecipe, data: Data) -> Predictor:
    """Return the predictor of a checkpoint.

    Raises UserError if it was trained with another vocabulary than `data`.
    """
    vocabulary = load_data_vocabulary(data)
    if checkpoint.state.vocabulary != (None if vocabulary is None else vocabulary.sha256):
        raise UserError(
            f"{data}: not the vocabulary that {checkpoint.path} was trained with. Name the data with --data DIR."
        )
    return Predictor(checkpoint, recipe, vocabulary, _characters(recipe, data))


def _characters(recipe: PretrainRecipe, data: Data) -> np.ndarray | None:
    """Return the most frequent character of each class, or the lowest one for remote data and unseen classes."""
    buckets = getattr(recipe.objective, "buckets", None)
    if buckets is None:
        return None
    characters = np.arange(buckets)
    if all(Storage.at(path).is_local for path in paths_of(data)):
        frequent = frequent_characters(ShardReader(data, "train"), max_rows=_WINDOWS)[::-1]
        # The most frequent character of a class is written last.
        characters[frequent % buckets] = frequent
    return characters
