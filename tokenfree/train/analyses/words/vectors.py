"""A vector for each word by itself: what enters the deep stack, or what comes out of the encoder.

N words, U units, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.analyses.subject.model import FRAME, AnalysedModel
from tokenfree.train.model.common.grouping import Downsampled, any_of_units
from tokenfree.train.model.embedders.characters import CharacterEmbedder

Place = Literal["down", "output"]

_AT_ONCE = 256


def have_vectors(model: AnalysedModel, words: Sequence[str], place: Place = "down") -> np.ndarray:
    """Which words have a vector of their own in `place`, bool [N]: see `word_vectors`."""
    if model.symbols == "subwords":
        counts_N = np.diff(model.vocabulary.encode_flat(list(words)).offsets)
        return counts_N == 1 if place == "down" else (counts_N >= 1) & (counts_N + FRAME <= model.reader.length)
    fits_N = np.array([model.fitting(word) == word for word in words], dtype=bool)
    if model.symbols == "bytes" and place == "down":
        return fits_N & np.array([len(word_spans(word)[0]) == 1 for word in words], dtype=bool)
    return fits_N


def are_single(vocabulary: Vocabulary, words: Sequence[str]) -> np.ndarray:
    """Which words are one subword, bool [N]."""
    return np.diff(vocabulary.encode_flat(list(words)).offsets) == 1


def word_vectors(model: AnalysedModel, words: Sequence[str], place: Place = "down") -> np.ndarray:
    """The vector of each word, read alone between CLS and SEP, so all at one position: float32 [N, D].

    `down`: of models of words the unit that goes into the deep stack, of models of subwords the row of the table, of
    models of characters the mean over the word's units. A word that the model reads as several words or subwords has
    none. `output`: the mean of what comes out over the word's characters or subwords. A word that is longer than the
    model reads has none (`have_vectors`).
    """
    vectors = np.zeros((len(words), model.encoder.width), dtype=np.float32)
    of = _of_subwords if model.symbols == "subwords" else _of_texts
    for start in range(0, len(words), _AT_ONCE):
        some = list(words[start : start + _AT_ONCE])
        vectors[start : start + len(some)] = of(model, some, place).float().cpu().numpy()
    return vectors


def _of_texts(model: AnalysedModel, words: list[str], place: Place) -> Tensor:
    """Of models of characters and of words of bytes."""
    seen: list[tuple[Tensor, Downsampled]] = []

    def after_down(module: Any, given: Any, down: Downsampled) -> None:
        seen.append((given[1], down))

    hook = model.encoder.downsampler.register_forward_hook(after_down)
    try:
        encoded = model.reader(words)
    finally:
        hook.remove()
    if place == "output":
        return encoded.mean
    mask_BC, down = seen[0]
    inner_BC = mask_BC & (mask_BC.flip(1).cumsum(1).flip(1) > 1)  # not the last, which is SEP
    inner_BC[:, 0] = False  # nor the first, which is CLS
    own_BU = any_of_units(inner_BC, down.grouping, down.valid_BU.shape[1])
    return (down.units_BUD * own_BU[..., None]).sum(dim=1) / own_BU.sum(dim=1, keepdim=True)


@torch.no_grad()
def _of_subwords(model: AnalysedModel, words: list[str], place: Place) -> Tensor:
    rows, encoder = [model.subwords(word) for word in words], model.encoder
    if place == "down":
        assert isinstance(encoder.embedder, CharacterEmbedder)
        return encoder.embedder.table(torch.cat([row[:, 1:-1] for row in rows]))[:, 0]
    units = [encoder.encode(row, torch.ones_like(row, dtype=torch.bool))[1][0, 1:-1] for row in rows]
    return torch.stack([unit_UD.mean(dim=0) for unit_UD in units])
