"""A trained run that fills in what is hidden: `load_predictor("RUN")("The capital of [MASK] is ...")`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.framing import room_for_characters
from tokenfree.train.batches.word_framing import room_for_words
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.inference import guesses
from tokenfree.train.inference.guesses import Guess
from tokenfree.train.inference.masked_text import MaskedText, read_masked_text
from tokenfree.train.runs.locate import newest_checkpoint
from tokenfree.train.runs.run_config import read_config


class Predictor:
    """The encoder and the head of a run, in evaluation mode.

    Args:
        vocabulary: of the data that it was trained on; None where its objective needs none.
    """

    def __init__(self, model: nn.ModuleDict, recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> None:
        self._model, self._recipe, self._vocabulary = model.eval(), recipe, vocabulary

    def __call__(self, text: str, top: int = 5) -> list[list[Guess]]:
        """The `top` guesses for each mark of `text`, the most likely first; see `read_masked_text` for marks.

        Each mark is guessed with the others hidden.

        Raises:
            UserError: there is no mark in it, or it is longer than the model reads.
        """
        masked = read_masked_text(text)
        return [guesses.best(self._guess(masked, number), top) for number in range(len(masked.sizes))]

    def _guess(self, text: MaskedText, number: int) -> list[tuple[str, float]]:
        objective, length = self._recipe.objective, self._recipe.train.length
        if objective.name == "masked_subwords":
            assert self._vocabulary is not None
            return guesses.guess_subword(text, number, self._vocabulary, self._score, length=length)
        if objective.name == "byte2word":
            room, _ = room_for_words(length, objective.bytes_per_word)
            pieces = self._pieces()
            return guesses.guess_word(text, number, pieces, self._score, length=length, num_words=room)
        if objective.name not in ("canine_s", "canine_c", "masked_characters"):
            raise UserError(f"this model was trained with objective.name: {objective.name}, which guesses no text")
        room = room_for_characters(length, objective.spare)
        if objective.name == "canine_s":
            pieces = self._pieces()
            return guesses.guess_subword_by_characters(text, number, pieces, self._score, length=length, room=room)
        return guesses.guess_characters(text, number, self._score_target, length=length, room=room)

    def _pieces(self) -> list[str]:
        assert self._vocabulary is not None
        return self._vocabulary.pieces()

    def _score(self, arrays: Arrays) -> Tensor:
        return self._log_probabilities(arrays)

    def _score_target(self, arrays: Mapping[str, np.ndarray], target: int) -> Tensor:
        rows = len(arrays["target_mask"])
        return self._log_probabilities(arrays).unflatten(0, (rows, -1))[:, target]

    @torch.no_grad()
    def _log_probabilities(self, arrays: Mapping[str, np.ndarray]) -> Tensor:
        batch = {name: torch.from_numpy(values) for name, values in arrays.items()}
        head, encoder = self._model["head"], self._model["encoder"]
        return head.target_logits(encoder, batch).float().log_softmax(dim=-1)  # pyright: ignore[reportCallIssue]


def load_predictor(run: str | Path, data: str | None = None) -> Predictor:
    """The newest sound checkpoint of a run, with the average of its weights where it has one, on the CPU.

    Args:
        run: its path or address.
        data: where the vocabulary of its data is, by default in the data directory that it was trained on.

    Raises:
        UserError: there is no such run, it was imported (and has no head), or its vocabulary is not to be found.
    """
    config = read_config(run)
    if not config.manifest:
        raise UserError(
            f"{run} was {config.data}: an encoder without the head that predicts; train on with --init-from"
        )
    recipe, checkpoint = config.recipe, newest_checkpoint(run)
    vocabulary = load_vocabulary(data or config.data)
    if checkpoint.state.vocabulary != (None if vocabulary is None else vocabulary.sha256):
        where = data or config.data
        raise UserError(f"{where} has not the vocabulary that {run} was trained with; name the data with --data DIR")
    with torch.random.fork_rng():  # fresh weights are drawn, then overwritten
        size = vocabulary.size if vocabulary is not None else 0
        model = nn.ModuleDict(
            {"encoder": recipe.model.build(), "head": recipe.objective.build(recipe.model.width, size)}
        )
    model.load_state_dict(checkpoint.weights())
    return Predictor(model, recipe, vocabulary)
