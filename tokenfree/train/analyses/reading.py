"""Test whether a model uses context: scores of targets with and without it, by language and script.

The context-free baseline knows only how frequent each answer is, and the position and length of a masked piece.
Therefore white space and masks stay unchanged.

B batch, C positions, N masked targets, or words of all examples
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tokenfree.preprocess.text.characters import SPACE, classes_of, scripts_of
from tokenfree.preprocess.text.specials import BYTE_MASK, BYTES, CHARACTERS, Specials, of_subwords
from tokenfree.train.batches.base import MASKED, Arrays, Symbols
from tokenfree.train.batches.characters import ragged_range
from tokenfree.train.batches.words import NUM_FRAME, frame_words
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.objectives.base import Head


def breakdown(names_N: np.ndarray, values: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the number of targets with each name and the means of `values` over them, most targets first."""
    found, of_N, counts = np.unique(names_N, return_inverse=True, return_counts=True)
    sums = {what: np.bincount(of_N, weights=value_N, minlength=len(found)) for what, value_N in values.items()}
    return [
        {
            "name": str(found[index]),
            "targets": int(counts[index]),
            **{what: float(of_each[index] / counts[index]) for what, of_each in sums.items()},
        }
        for index in np.argsort(-counts, kind="stable")
    ]


def languages_of(data: Data, split: str, sample_ids_N: np.ndarray) -> np.ndarray:
    """Return the language of each window, str [N]: that of its shard. Windows are numbers in the split, int64 [N]."""
    shards = ShardReader(data, split).shards
    before = np.cumsum([0, *(shard.rows for shard in shards)])
    languages = np.array([shard.language for shard in shards])
    return languages[np.searchsorted(before, sample_ids_N, side="right") - 1]


def scripts_of_targets(symbols: Symbols, batches: Iterable[Arrays]) -> np.ndarray:
    """Return the script of each target of `batches`, row by row: str, "" for digits, punctuation and symbols."""
    parts = [symbols.codepoints(arrays)[arrays["target_mask"]] for arrays in batches]
    return scripts_of(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))


Change = Literal["blank", "other"]


class _Marks(NamedTuple):
    """Positions in an input of symbols, bool [B, C]: its text, its masks, and the white space that always stays."""

    text: np.ndarray
    hidden: np.ndarray
    white: np.ndarray
    mask_id: int


def without_context(arrays: Arrays, symbols: str, num_subwords: int, change: Change) -> Arrays:
    """Return the batch `arrays` with another context. All arrays except the input stay the same.

    The change "blank" masks all text except white space. "other" takes the text of the example half a batch away,
    position by position, repeated if it is shorter. An example that is alone in its batch gets a blank context.
    `num_subwords` is the size of the vocabulary of a model of subwords.
    """
    if len(arrays["codepoints"]) == 1:
        change = "blank"
    if "unit_ends" in arrays:
        return {**arrays, **_words(arrays, change)}
    codepoints = arrays["codepoints"]
    specials = {"characters": CHARACTERS, "bytes": BYTES}.get(symbols) or of_subwords(num_subwords)
    marks = _marks_of(arrays, symbols, specials)
    changed = np.where(marks.white, codepoints, marks.mask_id) if change == "blank" else _other_text(codepoints, marks)
    return {**arrays, "codepoints": np.where(marks.text & ~marks.hidden, changed, codepoints)}


def _marks_of(arrays: Arrays, symbols: str, specials: Specials) -> _Marks:
    codepoints = arrays["codepoints"]
    text = arrays["mask"] & (codepoints != specials.cls) & (codepoints != specials.sep)
    white = np.zeros_like(text)
    if symbols != "subwords":
        white = text & (classes_of(codepoints.astype(np.uint32)) == SPACE)
    if symbols == "bytes":
        white &= codepoints < 0x80
    return _Marks(text, codepoints == specials.mask, white, specials.mask)


def _other_text(codepoints_BC: np.ndarray, marks: _Marks) -> np.ndarray:
    """Return the text of another example at the text positions of each example, int64 [B, C].

    Masks of that other example stay masks. Next to an example's own masks, white space stays, and other symbols are
    replaced by visible symbols only. Therefore the length of each masked piece, and whether it begins a word, stay the
    same.
    """
    counts = marks.text.sum(axis=1)
    partner = np.roll(np.arange(len(codepoints_BC)), len(codepoints_BC) // 2)
    place_BC = np.cumsum(marks.text, axis=1) - 1
    order = np.argsort(~marks.text, axis=1, kind="stable")  # text first, because pairs have a separator inside
    texts_BC, count_B = np.take_along_axis(codepoints_BC, order, axis=1)[partner], np.maximum(counts[partner], 1)
    taken_BC = np.take_along_axis(texts_BC, np.maximum(place_BC, 0) % count_B[:, None], axis=1)

    letters_BC = np.take_along_axis(marks.text & ~marks.white & ~marks.hidden, order, axis=1)[partner]
    letter_B = texts_BC[np.arange(len(texts_BC)), letters_BC.argmax(axis=1)]
    beside_BC = np.zeros_like(marks.hidden)
    beside_BC[:, 1:] |= marks.hidden[:, :-1]
    beside_BC[:, :-1] |= marks.hidden[:, 1:]
    white_BC = classes_of(np.minimum(taken_BC, 0x10FFFF).astype(np.uint32)) == SPACE if marks.white.any() else False
    no_letter_BC = beside_BC & ~marks.white & (white_BC | (taken_BC == marks.mask_id))
    taken_BC = np.where(no_letter_BC, letter_B[:, None], taken_BC)
    return np.where(beside_BC & marks.white, codepoints_BC, taken_BC)


def _words(arrays: Arrays, change: Change) -> Arrays:
    """Return an input of words of bytes with another context: all words masked, or words of another example."""
    ends_BU, length = arrays["unit_ends"], arrays["codepoints"].shape[1]
    num_units = ends_BU.shape[1]
    starts_BU = np.pad(ends_BU[:, :-1], ((0, 0), (1, 0)))
    counts_B = (ends_BU > starts_BU).sum(axis=1) - NUM_FRAME
    rows_N = np.repeat(np.arange(len(counts_B)), counts_B)
    words_N = ragged_range(np.ones_like(counts_B), counts_B)
    text = np.append(arrays["codepoints"].astype(np.uint8).reshape(-1), np.uint8(BYTE_MASK))
    mask_at, own_N = len(text) - 1, starts_BU[rows_N, words_N]
    starts_N, sizes_N = np.full(len(rows_N), mask_at), np.ones(len(rows_N), dtype=np.int64)
    if change == "other":
        partner_N = np.roll(np.arange(len(counts_B)), len(counts_B) // 2)[rows_N]
        places_N = 1 + (words_N - 1) % np.maximum(counts_B[partner_N], 1)
        hidden_N = arrays["codepoints"][rows_N, own_N] == BYTE_MASK
        sizes = np.where(hidden_N, 1, (ends_BU - starts_BU)[partner_N, places_N])
        # Bytes of a row up to and including each word, plus one mask byte per later word. Words that exceed the length
        # are masked.
        before_N = np.cumsum(sizes) - sizes
        first_N = np.repeat(np.cumsum(counts_B) - counts_B, counts_B)
        needed_N = before_N - before_N[first_N] + sizes + counts_B[rows_N] - words_N
        taken_N = ~hidden_N & (needed_N <= length - NUM_FRAME)
        starts_N = np.where(taken_N, partner_N * length + starts_BU[partner_N, places_N], mask_at)
        sizes_N = np.where(taken_N, sizes, 1)
    return frame_words(text, starts_N, sizes_N, counts_B, length, num_units)._asdict()


class TargetScores(NamedTuple):
    """Scores of N targets, in the order of the batches and row by row."""

    loss_N: np.ndarray  # float64, in nats
    correct_N: np.ndarray  # bool: the correct answer has the highest logit
    hidden_N: np.ndarray  # bool: the target is masked in the input
    sample_ids_N: np.ndarray  # int64: window of each target


@torch.no_grad()
def score_targets(encoder: nn.Module, head: Head, batches: Iterable[Arrays], device: torch.device) -> TargetScores:
    """Return the scores of all targets of collated `batches`. The modules must be in evaluation mode."""
    parts = [[np.zeros(0)], [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=np.int64)]]
    for arrays in batches:
        batch = {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}
        real = arrays["target_mask"]
        logits_NV = head.target_logits(encoder, batch).float()
        gold_N = batch["target_ids"][batch["target_mask"]]
        loss_N = functional.cross_entropy(logits_NV, gold_N, reduction="none").double()
        found = (
            loss_N.cpu().numpy(),
            (logits_NV.argmax(-1) == gold_N).cpu().numpy(),
            arrays["target_kinds"][real] == MASKED,
            np.broadcast_to(arrays["sample_ids"][:, None], real.shape)[real],
        )
        for part, values in zip(parts, found, strict=True):
            part.append(values)
    return TargetScores(*(np.concatenate(part) for part in parts))
