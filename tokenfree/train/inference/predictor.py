"""Masked-token predictions of a trained run: `load_predictor("RUN")("The capital of [MASK] is ...")`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.characters import most_characters
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import Data, load_data_vocabulary, paths_of
from tokenfree.train.data.validation import frequent_characters
from tokenfree.train.inference import guesses
from tokenfree.train.inference.guesses import Guess, MaskedText, read_masked_text
from tokenfree.train.model.encoder import EncoderOutput
from tokenfree.train.runs.checkpoints import Checkpoint
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.run import checkpoint_of
from tokenfree.train.tasks.inputs import text_inputs

_WINDOWS = 5000  # windows in which characters are counted


class Predictor:
    """The encoder and the head of a run, in evaluation mode.

    Args:
        recipe: Recipe of the run.
        vocabulary: Vocabulary of its data; None if its objective needs none.
        characters: Character of each class, int64 [classes]; None if its objective has no such classes.
    """

    checkpoint: Checkpoint | None = None

    def __init__(
        self,
        model: nn.ModuleDict,
        recipe: PretrainRecipe,
        vocabulary: Vocabulary | None,
        characters: np.ndarray | None = None,
    ) -> None:
        self._model, self.recipe, self.vocabulary = model.eval(), recipe, vocabulary
        self._characters = characters

    def __repr__(self) -> str:
        step = "" if self.checkpoint is None else f", step={self.checkpoint.step}"
        return f"Predictor(objective={self.recipe.objective.name}{step})"

    def __call__(self, text: str | MaskedText, top: int = 5) -> list[list[Guess]]:
        """Return the `top` predictions for each mask of `text`, `[MASK]` or `[MASK:5]`, while the others stay masked.

        Raises UserError if the text has no mask, or it is longer than the model reads.
        """
        split = read_masked_text(text) if isinstance(text, str) else text
        return [guesses.best(self._guess(split, number), top) for number in range(len(split.sizes))]

    def _guess(self, text: MaskedText, number: int) -> list[tuple[str, float]]:
        objective, length = self.recipe.objective, self.recipe.train.length
        if objective.name == "masked_subwords":
            assert self.vocabulary is not None
            return guesses.guess_subword(text, number, self.vocabulary, self._score, length=length)
        if objective.name == "byte2word":
            inputs = text_inputs(self.recipe.model, length, None)
            return guesses.guess_word(text, number, self._pieces(), self._score, inputs=inputs)
        if objective.name not in ("canine_s", "canine_c", "masked_characters"):
            raise UserError(f"objective.name: {objective.name} of this run predicts no text. Give another run.")
        room = most_characters(length, objective.spare)
        if objective.name == "canine_s":
            return guesses.guess_subword_by_characters(
                text, number, self._pieces(), self._score, length=length, room=room
            )
        assert self._characters is not None
        return guesses.guess_characters(
            text, number, self._score_target, characters=self._characters.tolist(), length=length, room=room
        )

    def _pieces(self) -> list[str]:
        assert self.vocabulary is not None
        return self.vocabulary.pieces()

    def _score(self, arrays: Arrays) -> Tensor:
        return self._log_probabilities(arrays, self._model["encoder"])

    def _score_target(self, arrays: Mapping[str, np.ndarray], target: int) -> Tensor:
        rows = len(arrays["target_mask"])
        encoder = _OneText(self._model["encoder"])
        return self._log_probabilities(arrays, encoder).unflatten(0, (rows, -1))[:, target]

    @torch.no_grad()
    def _log_probabilities(self, arrays: Mapping[str, np.ndarray], encoder: Any) -> Tensor:
        batch = {name: torch.from_numpy(values) for name, values in arrays.items()}
        head = self._model["head"]
        return head.target_logits(encoder, batch).float().log_softmax(dim=-1)  # pyright: ignore[reportCallIssue]


class _OneText:
    """An encoder for batches whose rows differ only in the known targets. It encodes only the first row."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def __call__(self, codepoints: Tensor, mask: Tensor, *, targets_BP: Tensor) -> EncoderOutput:
        out = self._encoder(codepoints[:1], mask[:1], targets_BP=targets_BP[:1])
        return EncoderOutput(*(part.expand(len(codepoints), *part.shape[1:]) for part in out))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


def load_predictor(
    run: str | Path, data: str | None = None, *, step: int | None = None, trust_code: bool = False
) -> Predictor:
    """Return the predictor of a run, with averaged weights if the run has them. `checkpoint_of` chooses the checkpoint.

    Args:
        run: Path or address of the run.
        data: Data directory with the vocabulary, by default that of the run.
        step: Step of the checkpoint to use instead.
        trust_code: Whether to run code outside tokenfree that the run names.

    Raises UserError if there is no such run, it was imported (and has no head), or its vocabulary is missing, and
    JobError if the checkpoint is damaged.
    """
    config = read_config(run, trust_code=trust_code)
    if not config.manifest:
        raise UserError(
            f"{run} was {config.data}: an encoder without the head that predicts. Train it with --init-from."
        )
    return predictor_of(checkpoint_of(run, step), config.recipe, data or config.data)


def predictor_of(checkpoint: Checkpoint, recipe: PretrainRecipe, data: Data) -> Predictor:
    """Return the predictor of a checkpoint. Raises UserError if it was trained with another vocabulary than `data`."""
    vocabulary = load_data_vocabulary(data)
    if checkpoint.state.vocabulary != (None if vocabulary is None else vocabulary.sha256):
        raise UserError(
            f"{data}: not the vocabulary that {checkpoint.path} was trained with. Name the data with --data DIR."
        )
    with torch.random.fork_rng():  # building the model draws random weights, which are then overwritten
        size = vocabulary.size if vocabulary is not None else 0
        model = nn.ModuleDict(
            {"encoder": recipe.model.build(), "head": recipe.objective.build(recipe.model.width, size)}
        )
    model.load_state_dict(checkpoint.weights())
    predictor = Predictor(model, recipe, vocabulary, _characters(recipe, data))
    predictor.checkpoint = checkpoint
    return predictor


def _characters(recipe: PretrainRecipe, data: Data) -> np.ndarray | None:
    """Return the most frequent character of each class, or the lowest one for remote data and unseen classes."""
    buckets = getattr(recipe.objective, "buckets", None)
    if buckets is None:
        return None
    found = np.arange(buckets)
    if all(Storage.at(path).is_local for path in paths_of(data)):
        frequent = frequent_characters(data, max_rows=_WINDOWS)[::-1]
        found[frequent % buckets] = frequent  # the most frequent character of a class is written last
    return found
