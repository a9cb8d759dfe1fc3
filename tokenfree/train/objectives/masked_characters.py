"""Characters as the unit of masking and of prediction, each by itself: character BERT (arXiv 2103.06874, Table 2).

White space is neither masked nor predicted, so that bits per character compare with those of CANINE-C.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays, Collator, Rows, Symbols, draw_unselected, select, target_kinds
from tokenfree.train.batches.characters import (
    character_symbols,
    crop,
    frame,
    ragged_range,
    room_for_characters,
    words,
)
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import MaskedObjective, reads_characters
from tokenfree.train.objectives.heads import MaskedHead

_MASKED, _REPLACED = 0.8, 0.1
_LONGEST_WORD = 32  # that a long window is not cut in


@settings
class Config(MaskedObjective):
    """BERT's loss over characters (arXiv 2103.06874, Table 2, row 3): how many are predicted, into how many classes.

    Attributes:
        max_predictions: the most characters of an example that are predicted, at least 1.
        buckets: classes: codepoints modulo this, 1 to 0x110000.
        spare: positions left as padding, so that padding never matters; 0: none.
        next_sentence: windows in two parts, and whether the second follows the first is predicted too.
    """

    name: Literal["masked_characters"] = "masked_characters"
    max_predictions: Annotated[int, Field(ge=1)] = 320
    buckets: Annotated[int, Field(ge=1, le=0x110000)] = 16384
    spare: Annotated[int, Field(ge=0)] = 6
    next_sentence: bool = False

    def build(self, width: int, vocabulary_size: int) -> MaskedHead:
        return MaskedHead(width, self.buckets, bits=True, next_sentence=self.next_sentence)

    def vocabulary_size(self, model: ModelConfig) -> int | None:
        return 0

    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        room = room_for_characters(length, self.spare)
        single = MaskedCharactersCollator(self, length, seed)
        return PairCollator(single, room, seed) if self.next_sentence else single

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        return reads_characters(self.name, model)

    def rules(self) -> Mapping[str, Sequence[str]]:
        return {**super().rules(), "masked_characters": ("replacements are drawn from what is not selected",)}

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        return character_symbols(self.buckets)


class MaskedCharactersCollator:
    """Windows to masked inputs and their targets.

    15% (`mask_fraction`) of the characters of a window that are no white space are selected, rounded, at least one, at
    most `max_predictions` P. Of them 80% become MASK, 10% a random such character of the same window that is not
    selected, 10% stay.

    A batch: codepoints int64 [b, length], mask bool [b, length], target_positions int64 [b, P], target_codepoints int64
    [b, P], target_ids int64 [b, P] (their buckets), target_mask bool [b, P], target_kinds int64 [b, P], num_characters
    int64 [b]; the unused last targets of a row are 0.
    """

    columns = ("codepoints", "whitespace")

    def __init__(self, config: Config, length: int, seed: int) -> None:
        self.length = length
        self._config = config
        self._seed = seed

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        config, windows = self._config, rows["codepoints"]
        num_words, starts, ends = words(rows["whitespace"], _LONGEST_WORD)
        edges = np.cumsum(num_words)[:-1]
        room = room_for_characters(self.length, config.spare)
        begin, end = crop(windows, np.split(starts, edges), np.split(ends, edges), room, self._seed, sample_ids)
        codepoints, mask = frame(windows, begin, end, self.length)

        of = np.repeat(np.arange(len(windows)), num_words)
        first, last = np.maximum(starts, begin[of]), np.minimum(ends, end[of])
        size = np.maximum(last - first, 0)
        counts = np.bincount(of, weights=size, minlength=len(windows)).astype(np.int64)  # characters of words
        positions = ragged_range(first - begin[of] + 1, size)
        target_mask, slots, chosen = select(
            counts,
            np.ones(len(positions), dtype=bool),
            fraction=config.mask_fraction,
            most=config.max_predictions,
            seed=self._seed,
            sample_ids=sample_ids,
        )
        row, position = slots[0], positions[chosen]
        gold = codepoints[row, position]
        action, choice = (
            random.uniform(self._seed, purpose, sample_ids, config.max_predictions)[slots]
            for purpose in ("action", "choice")
        )
        other = draw_unselected(counts, chosen, row, choice)
        replaced = (action >= _MASKED) & (action < _MASKED + _REPLACED) & (other >= 0)
        shown = np.where(replaced, codepoints[row, positions[other]], gold)
        codepoints[row, position] = np.where(action < _MASKED, MASK, shown)
        target_positions, target_codepoints, kinds = (np.zeros(target_mask.shape, dtype=np.int64) for _ in range(3))
        target_positions[slots], target_codepoints[slots] = position, gold
        kinds[slots] = target_kinds(action < _MASKED, shown == gold)
        return {
            "codepoints": codepoints,
            "mask": mask,
            "target_positions": target_positions,
            "target_codepoints": target_codepoints,
            "target_ids": target_codepoints % config.buckets,
            "target_mask": target_mask,
            "target_kinds": kinds,
            "num_characters": end - begin,
        }
