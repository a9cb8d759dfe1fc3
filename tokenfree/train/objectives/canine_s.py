"""CANINE-S: predict the identity of masked subwords, each at one of its characters (arXiv 2103.06874, section 3.2).

Byte-fallback pieces and <unk> are never selected, predicted or put in: several bytes share one character, so that no
single identity belongs to it, and <unk> says nothing. With the default character
coverage they stand for one character in 2,000.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays, Collator, Rows, Symbols, select, target_kinds
from tokenfree.train.batches.characters import crop, frame, ragged_range, room_for_characters
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.batches.subwords import Pool, needed_pieces, subword_symbols
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import reads_characters
from tokenfree.train.objectives.heads import MaskedHead, SubwordOutput

_MASKED, _REPLACED = 0.8, 0.1


@settings
class Config(SubwordOutput):
    """CANINE-S's loss (Clark et al., arXiv 2103.06874, section 3.2): how many subwords are predicted, and how long a
    window may be.

    Attributes:
        max_predictions: the most subwords of an example that are predicted, at least 1.
        spare: positions left as padding: a block of 4 and 2, so that padding never matters.
        next_sentence: windows in two parts, and whether the second follows the first is predicted too.
    """

    name: Literal["canine_s"] = "canine_s"
    max_predictions: Annotated[int, Field(ge=1)] = 80
    spare: Annotated[int, Field(ge=0)] = 6
    next_sentence: bool = False

    def build(self, width: int, vocabulary_size: int) -> MaskedHead:
        return MaskedHead(
            width, vocabulary_size, spelled=self.output_rows == "spelled", next_sentence=self.next_sentence
        )

    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        room = room_for_characters(length, self.spare)
        single = CanineSCollator(self, needed_pieces(self.name, vocabulary), length, seed)
        return PairCollator(single, room, seed) if self.next_sentence else single

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        return reads_characters(self.name, model)

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        return None if vocabulary is None else subword_symbols(vocabulary, shown=True)


class CanineSCollator:
    """Windows to masked inputs and their targets.

    15% (`mask_fraction`) of the subwords of a window are selected, rounded, at least one, at most `max_predictions` P.
    Of them 80% have all characters replaced by MASK, 10% are replaced by a random subword of as many characters (one
    that begins a word for one that does, another for another), 10% stay. Lengths never change.

    A batch: codepoints int64 [b, length], mask bool [b, length], target_positions int64 [b, P], target_ids int64
    [b, P], target_mask bool [b, P], target_kinds int64 [b, P], num_characters int64 [b]; the unused last targets of a
    row are 0.
    """

    columns = ("codepoints", "subword_ids", "subword_starts", "subword_ends")

    def __init__(self, config: Config, pieces: Sequence[str], length: int, seed: int) -> None:
        self.length = length
        self._config = config
        self._seed = seed
        self._pool = Pool(pieces)

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        windows, row_starts, row_ends = rows["codepoints"], rows["subword_starts"], rows["subword_ends"]
        begin, end = crop(windows, row_starts, row_ends, self.length - 2 - self._config.spare, self._seed, sample_ids)
        codepoints, mask = frame(windows, begin, end, self.length)

        counts = np.array([len(row) for row in row_starts])
        ids, starts, ends = (
            np.concatenate(parts).astype(np.int64) for parts in (rows["subword_ids"], row_starts, row_ends)
        )
        of = np.repeat(np.arange(len(counts)), counts)  # the row of each subword
        usable = self._pool.usable[ids] & (starts >= begin[of]) & (ends <= end[of])
        target_mask, slots, subwords = select(
            counts,
            usable,
            fraction=self._config.mask_fraction,
            most=self._config.max_predictions,
            seed=self._seed,
            sample_ids=sample_ids,
        )
        row, gold = of[subwords], ids[subwords]
        first = starts[subwords] - begin[row] + 1
        size = ends[subwords] - starts[subwords]
        shape = (len(counts), self._config.max_predictions)
        action, place, choice = (
            random.uniform(self._seed, purpose, sample_ids, shape[1])[slots]
            for purpose in ("action", "place", "choice")
        )
        shown = self._change(codepoints, first + row * self.length, size, gold, action, choice)
        target_positions, target_ids, kinds = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        target_positions[slots] = first + (place * size).astype(np.int64)
        target_ids[slots] = gold
        kinds[slots] = target_kinds(action < _MASKED, shown == gold)
        return {
            "codepoints": codepoints,
            "mask": mask,
            "target_positions": target_positions,
            "target_ids": target_ids,
            "target_mask": target_mask,
            "target_kinds": kinds,
            "num_characters": end - begin,
        }

    def _change(
        self,
        codepoints: np.ndarray,
        first: np.ndarray,
        size: np.ndarray,
        gold: np.ndarray,
        action: np.ndarray,
        choice: np.ndarray,
    ) -> np.ndarray:
        """Mask, replace or keep the selected subwords in place; `first` counts through the flattened codepoints.

        The subwords that come in their place, int64 [n]: for all but replaced ones themselves.
        """
        flat = codepoints.reshape(-1)
        masked = action < _MASKED
        flat[ragged_range(first[masked], size[masked])] = MASK
        replaced = np.flatnonzero(~masked & (action < _MASKED + _REPLACED))
        new = self._pool.draw(gold[replaced], size[replaced], choice[replaced])
        found = new >= 0
        replaced, new = replaced[found], new[found]
        source = ragged_range(self._pool.first[new], size[replaced])
        flat[ragged_range(first[replaced], size[replaced])] = self._pool.characters[source]
        shown = gold.copy()
        shown[replaced] = new
        return shown
