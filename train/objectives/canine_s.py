"""CANINE-S: predict the identity of masked subwords, each at one of its characters (arXiv 2103.06874, section 3.2).

Byte-fallback pieces and <unk> are never selected, predicted or put in: several bytes share one character, so that no
single identity belongs to it, and <unk> says nothing. With the default character
coverage they stand for one character in 2,000.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from preprocess.errors import UserError
from preprocess.settings import settings
from train.data import random
from train.objectives.base import Arrays, Loss, Pieces, Rows
from train.objectives.framing import MASK, crop, frame, ragged_range
from train.objectives.subwords import Pool

_MASKED, _REPLACED = 0.8, 0.1
_INDEX_BITS = np.uint64(16)  # the number of a subword in its window fits: windows have at most 16,383 characters
_NEVER = np.uint64(2**64 - 1)


@settings
class Config:
    """How many subwords are predicted, and how long a window may be."""

    name: Literal["canine_s"] = "canine_s"
    mask_fraction: Annotated[float, Field(gt=0, le=1)] = 0.15
    max_predictions: Annotated[int, Field(ge=1)] = 80
    spare: Annotated[int, Field(ge=0)] = (
        6  # positions left as padding: a block of 4 and 2, so that padding never matters
    )

    def build(self, width: int, vocabulary_size: int) -> "CanineS":
        """The head over `vocabulary_size` subwords for an encoder of `width`."""
        return CanineS(width, vocabulary_size)

    def collator(self, vocabulary: Pieces | None, length: int, seed: int) -> "Collator":
        """Masks for inputs of `length` positions. UserError without a vocabulary, or if no character fits."""
        if vocabulary is None:
            raise UserError(
                "objective.name: canine_s predicts subwords, and the data has no vocabulary; preprocess with the "
                "subword columns, or choose another objective"
            )
        if length - 2 - self.spare < 1:
            raise UserError(f"train.length: {length} leaves no character; make it at least {self.spare + 3}")
        return Collator(self, vocabulary.pieces(), length, seed)


class Collator:
    """Windows to masked inputs and their targets.

    15% (`mask_fraction`) of the subwords of a window are selected, rounded, at least one, at most `max_predictions` P.
    Of them 80% have all characters replaced by MASK, 10% are replaced by a random subword of as many characters (one
    that begins a word for one that does, another for another), 10% stay. Lengths never change.

    A batch: codepoints int64 [b, length], mask bool [b, length], target_positions int64 [b, P], target_ids int64
    [b, P], target_mask bool [b, P]; the unused last targets of a row are 0.
    """

    columns = ("codepoints", "subword_ids", "subword_starts", "subword_ends")

    def __init__(self, config: Config, pieces: Sequence[str], length: int, seed: int) -> None:
        self.length = length
        self._config = config
        self._seed = seed
        self._pool = Pool(pieces)

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        """`rows`: the columns of b windows; `sample_ids`: int64 [b], by which everything random is drawn."""
        windows, row_starts, row_ends = rows["codepoints"], rows["subword_starts"], rows["subword_ends"]
        begin, end = crop(windows, row_starts, row_ends, self.length - 2 - self._config.spare, self._seed, sample_ids)
        codepoints, mask = frame(windows, begin, end, self.length)

        counts = np.array([len(row) for row in row_starts])
        ids, starts, ends = (
            np.concatenate(parts).astype(np.int64) for parts in (rows["subword_ids"], row_starts, row_ends)
        )
        of = np.repeat(np.arange(len(counts)), counts)  # the row of each subword
        usable = self._pool.usable[ids] & (starts >= begin[of]) & (ends <= end[of])
        target_mask, slots, subwords = self._select(counts, of, usable, sample_ids)

        row, gold = of[subwords], ids[subwords]
        first = starts[subwords] - begin[row] + 1
        size = ends[subwords] - starts[subwords]
        shape = (len(counts), self._config.max_predictions)
        action, place, choice = (
            random.uniform(self._seed, purpose, sample_ids, shape[1])[slots]
            for purpose in ("action", "place", "choice")
        )
        self._change(codepoints, first + row * self.length, size, gold, action, choice)
        target_positions, target_ids = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        target_positions[slots] = first + (place * size).astype(np.int64)
        target_ids[slots] = gold
        return {
            "codepoints": codepoints,
            "mask": mask,
            "target_positions": target_positions,
            "target_ids": target_ids,
            "target_mask": target_mask,
        }

    def _select(
        self, counts: np.ndarray, of: np.ndarray, usable: np.ndarray, sample_ids: np.ndarray
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Which targets exist, bool [b, P]; where those are (rows, columns), and their subwords, int64 [targets]."""
        before = np.cumsum(counts) - counts
        number = np.arange(len(of)) - before[of]  # of the subword in its window
        keys = np.full((len(counts), max(int(counts.max(initial=0)), 1)), _NEVER)
        # Every subword draws 48 bits above its own number; the least are selected. Partitioning such integers is
        # vectorised inside NumPy, and their low bits tell who they were.
        drawn = random.bits(self._seed, "selection", sample_ids, keys.shape[1]) << _INDEX_BITS
        keys[of[usable], number[usable]] = drawn[of[usable], number[usable]] | number[usable].astype(np.uint64)
        most = min(self._config.max_predictions, keys.shape[1])
        least = np.sort(np.partition(keys, most - 1, axis=1)[:, :most], axis=1)
        available = np.bincount(of[usable], minlength=len(counts))
        wanted = np.maximum(np.floor(self._config.mask_fraction * available + 0.5), 1)
        wanted = np.minimum(np.minimum(wanted, available), self._config.max_predictions)
        target_mask = np.arange(self._config.max_predictions) < wanted[:, None]
        rows, columns = np.nonzero(target_mask)
        numbers = (least[rows, columns] & np.uint64(0xFFFF)).astype(np.int64)
        return target_mask, (rows, columns), before[rows] + numbers

    def _change(
        self,
        codepoints: np.ndarray,
        first: np.ndarray,
        size: np.ndarray,
        gold: np.ndarray,
        action: np.ndarray,
        choice: np.ndarray,
    ) -> None:
        """Mask, replace or keep the selected subwords in place; `first` counts through the flattened codepoints."""
        flat = codepoints.reshape(-1)
        masked = action < _MASKED
        flat[ragged_range(first[masked], size[masked])] = MASK
        replaced = np.flatnonzero(~masked & (action < _MASKED + _REPLACED))
        new = self._pool.draw(gold[replaced], size[replaced], choice[replaced])
        found = new >= 0
        replaced, new = replaced[found], new[found]
        source = ragged_range(self._pool.first[new], size[replaced])
        flat[ragged_range(first[replaced], size[replaced])] = self._pool.characters[source]


class CanineS(nn.Module):
    """Dense, GELU, LayerNorm, and a softmax over the subwords that is not tied to anything (BERT's transform)."""

    def __init__(self, width: int, vocabulary_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.output = nn.Linear(width, vocabulary_size)
        for linear in (self.dense, self.output):
            nn.init.trunc_normal_(linear.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(linear.bias)

    def forward(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """The loss of a batch of the collator; the encoder is asked for the target positions only."""
        out = encoder(batch["codepoints"], batch["mask"], targets_BP=batch["target_positions"])
        h_BPD, gold_BP, real_BP = out.characters, batch["target_ids"], batch["target_mask"]
        if h_BPD.device.type == "cpu" and not torch.compiler.is_compiling():
            # Short windows leave most of the P rows empty. Elsewhere their number would cost a synchronisation.
            h_BPD, gold_BP, real_BP = h_BPD[real_BP], gold_BP[real_BP], real_BP[real_BP]
        logits = self.output(self.norm(functional.gelu(self.dense(h_BPD), approximate="tanh")))
        logits = logits.flatten(end_dim=-2).float()
        gold = gold_BP.masked_fill(~real_BP, -100).flatten()
        total = functional.cross_entropy(logits, gold, ignore_index=-100, reduction="sum")
        return Loss(total, real_BP.sum(), (logits.detach().argmax(-1) == gold).sum())
