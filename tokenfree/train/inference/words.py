"""Texts for encoders of words of bytes: which word each character is in, and the vectors of both.

B texts, C characters with CLS and SEP, U words with CLS and SEP, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenfree.train.batches.words import NOWHERE, NUM_FRAME, Words, frame_words, join_words, text_words
from tokenfree.train.model.encoder import Encoder


class TextWords(NamedTuple):
    """The words of some texts."""

    words: Words
    word_of: list[np.ndarray]  # for each text int64 [characters]: the word of each, -1 where it is in none


def words_of_texts(texts: Sequence[str]) -> TextWords:
    """The words of texts as they are; the bytes of special symbols and lone surrogates are taken out first."""
    found = [text_words(text) for text in texts]
    encoded, starts, ends, word_of = (list(part) for part in zip(*found, strict=True))
    return TextWords(join_words(encoded, starts, ends), word_of)


def encode_words(encoder: Encoder, found: TextWords) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Vectors of characters [B, C, D] and which have one, bool [B, C]; the pooled vector [B, D]; words alike, [B, U].

    The upsampler, which served the prediction of subwords, has no part in it.
    """
    words = found.words
    room = (int(words.num_bytes.max()) + NUM_FRAME, int(words.counts.max()) + NUM_FRAME)
    framed = frame_words(words.text, words.starts, words.sizes, words.counts, *room)
    device = encoder.pooler.weight.device
    codepoints_BC, mask_BC, unit_ends_BU = (torch.from_numpy(array).to(device) for array in framed)
    down, units_BUD = encoder.encode(codepoints_BC, mask_BC, unit_ends_BU=unit_ends_BU)

    longest = max(len(row) for row in found.word_of) + NUM_FRAME
    unit = np.full((len(found.word_of), longest), NOWHERE)
    for line, row, count in zip(unit, found.word_of, words.counts.tolist(), strict=True):
        line[0], line[len(row) + 1] = 0, count + 1
        line[1 : len(row) + 1] = np.where(row == NOWHERE, NOWHERE, row + 1)
    unit_BC = torch.from_numpy(unit).to(device)
    known_BC = unit_BC != NOWHERE
    rows_BC1 = unit_BC.clamp(min=0)[..., None]
    characters_BCD = units_BUD.gather(1, rows_BC1.expand(-1, -1, units_BUD.shape[-1])) * known_BC[..., None]
    return characters_BCD, known_BC, encoder.pool(units_BUD), units_BUD * down.valid_BU[..., None], down.valid_BU
