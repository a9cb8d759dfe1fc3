"""A vector for each word by itself: what enters the deep stack, or what comes out of the encoder.

N words, U units, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenfree.train.analyses.subject.model import AnalysedModel
from tokenfree.train.model.common.grouping import Downsampled, any_of_units
from tokenfree.train.model.embedders.characters import CharacterEmbedder

Place = Literal["down", "output"]

_AT_ONCE = 256


class WordVectors(NamedTuple):
    """Vectors of words, and which words have one."""

    vectors_ND: np.ndarray  # float32; of words without one, zeros
    has_one_N: np.ndarray  # bool


def word_vectors(model: AnalysedModel, words: Sequence[str], place: Place = "down") -> WordVectors:
    """The vector of each word, read alone between CLS and SEP, so all at one position.

    `down`: of models of words the unit that goes into the deep stack, of models of subwords the row of the table, of
    models of characters the mean over the word's units. A word that the model reads as several words or subwords has
    none. `output`: the mean of what comes out over the word's characters or subwords. A word that is longer than the
    model reads has none.
    """
    fits = np.array([bool(word) and model.fitting(word) == word for word in words])
    vectors = np.zeros((len(words), model.encoder.width), dtype=np.float32)
    has_one = np.zeros(len(words), dtype=bool)
    of = {"subwords": _of_subwords}.get(model.symbols, _of_texts)
    chosen = np.flatnonzero(fits)
    for start in range(0, len(chosen), _AT_ONCE):
        some = chosen[start : start + _AT_ONCE]
        vectors_ND, single_N = of(model, [words[index] for index in some], place)
        has_one[some] = single_N
        vectors[some[single_N]] = vectors_ND[single_N]
    return WordVectors(vectors, has_one)


def _of_texts(model: AnalysedModel, words: list[str], place: Place) -> tuple[np.ndarray, np.ndarray]:
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
        return encoded.mean.float().cpu().numpy(), np.ones(len(words), dtype=bool)
    mask_BC, down = seen[0]
    inner_BC = mask_BC & (mask_BC.flip(1).cumsum(1).flip(1) > 1)  # not the last, which is SEP
    inner_BC[:, 0] = False  # nor the first, which is CLS
    own_BU = any_of_units(inner_BC, down.grouping, down.valid_BU.shape[1])
    means_BD = (down.units_BUD * own_BU[..., None]).sum(dim=1) / own_BU.sum(dim=1, keepdim=True).clamp(min=1)
    single_B = own_BU.sum(dim=1) == 1 if model.symbols == "bytes" else own_BU.any(dim=1)
    return means_BD.float().cpu().numpy(), single_B.cpu().numpy()


@torch.no_grad()
def _of_subwords(model: AnalysedModel, words: list[str], place: Place) -> tuple[np.ndarray, np.ndarray]:
    rows = [model.subwords(word) for word in words]
    single_N = np.array([row.shape[1] == 3 for row in rows])
    encoder = model.encoder
    if place == "down":
        ids_N = torch.tensor([int(row[0, 1]) for row in rows])
        embedder = encoder.embedder
        assert isinstance(embedder, CharacterEmbedder)
        return embedder.table(ids_N[:, None])[:, 0].float().numpy(), single_N
    units = [encoder.encode(row, torch.ones_like(row, dtype=torch.bool))[1][0, 1:-1] for row in rows]
    return torch.stack([unit_UD.mean(dim=0) for unit_UD in units]).float().numpy(), np.ones(len(words), dtype=bool)
