"""Texts for encoders of words of bytes: which word each character is in, and the vectors of both.

B texts, C characters with CLS and SEP, U words with CLS and SEP, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenfree.preprocess.text.characters import byte_offsets
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.batches.word_framing import NUM_FRAME, Words, frame_words, join_words
from tokenfree.train.model.embedders.word_bytes import MASK
from tokenfree.train.model.encoder import Encoder

_NOWHERE = -1


class TextWords(NamedTuple):
    """The words of some texts."""

    words: Words
    word_of: list[np.ndarray]  # for each text int64 [characters]: the word of each, -1 where it is in none


def words_of_texts(texts: Sequence[str]) -> TextWords:
    """The words of texts as they are; the bytes of special symbols and lone surrogates are taken out first."""
    found = [_words_of(text) for text in texts]
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
    unit = np.full((len(found.word_of), longest), _NOWHERE)
    for line, row, count in zip(unit, found.word_of, words.counts.tolist(), strict=True):
        line[0], line[len(row) + 1] = 0, count + 1
        line[1 : len(row) + 1] = np.where(row == _NOWHERE, _NOWHERE, row + 1)
    unit_BC = torch.from_numpy(unit).to(device)
    known_BC = unit_BC != _NOWHERE
    rows_BC1 = unit_BC.clamp(min=0)[..., None]
    characters_BCD = units_BUD.gather(1, rows_BC1.expand(-1, -1, units_BUD.shape[-1])) * known_BC[..., None]
    return characters_BCD, known_BC, encoder.pool(units_BUD), units_BUD * down.valid_BU[..., None], down.valid_BU


def _words_of(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """UTF-8 (uint8), byte spans of words, and the word of each character."""
    codepoints = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kept = np.flatnonzero((codepoints > MASK) & ((codepoints < 0xD800) | (codepoints > 0xDFFF)))
    clean = codepoints[kept].tobytes().decode("utf-32-le")
    starts, ends = (span.astype(np.int64) for span in word_spans(clean))
    places = byte_offsets(codepoints[kept])[:-1]
    word = np.searchsorted(ends, places, side="right")
    inside = places >= np.append(starts, len(clean) * 4)[word]
    word_of = np.full(len(codepoints), _NOWHERE)
    word_of[kept[inside]] = word[inside]
    return np.frombuffer(clean.encode(), dtype=np.uint8), starts, ends, word_of
