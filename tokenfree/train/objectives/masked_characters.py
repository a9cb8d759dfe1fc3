"""Characters as the unit of masking and of prediction, each by itself: character BERT (arXiv 2103.06874, Table 2).

White space is neither masked nor predicted, so that bits per character compare with those of CANINE-C.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches.base import Arrays, Collator, Rows, Symbols, draw_unselected, select, target_kinds
from tokenfree.train.batches.characters import (
    character_symbols,
    frame_whole_words,
    ragged_range,
    room_for_characters,
)
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import MaskedObjective, reads_characters
from tokenfree.train.objectives.heads import MaskedHead

_LONGEST_WORD = 32  # that a long window is not cut in


@settings
class Config(MaskedObjective):
    """BERT's loss over characters (arXiv 2103.06874, Table 2, row 3): how many are predicted, into how many classes.

    Attributes:
        max_predictions: the most characters of an example that are predicted.
        buckets: classes: codepoints modulo this, 1 to 0x110000.
        spare: positions left as padding, so that padding never matters; 0: none.
        next_sentence: windows in two parts, and whether the second follows the first is predicted too.
    """

    name: Literal["masked_characters"] = "masked_characters"
    max_predictions: Positive = 320
    buckets: Annotated[int, Field(ge=1, le=0x110000)] = 16384
    spare: NonNegative = 6
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


class MaskedCharactersCollator(Collator):
    """Windows to masked inputs and their targets; `target_codepoints`, int64 [b, P], are the characters.

    Of the characters of a window that are no white space `mask_fraction` are selected, rounded, at least one, at most
    `max_predictions`. Of them 80% become MASK, 10% a random such character of the same window that is not selected,
    10% stay.
    """

    columns = ("codepoints", "whitespace")

    def __init__(self, config: Config, length: int, seed: int) -> None:
        self.length = length
        self._config, self._seed = config, seed

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        config = self._config
        window = frame_whole_words(rows, _LONGEST_WORD, config.spare, self.length, self._seed, sample_ids)
        codepoints, of = window.codepoints, window.of
        first, last = np.maximum(window.starts, window.begin[of]), np.minimum(window.ends, window.end[of])
        size = np.maximum(last - first, 0)
        counts = np.bincount(of, weights=size, minlength=len(codepoints)).astype(np.int64)  # characters of words
        positions = ragged_range(first - window.begin[of] + 1, size)
        chosen = select(
            counts,
            np.ones(len(positions), dtype=bool),
            fraction=config.mask_fraction,
            most=config.max_predictions,
            seed=self._seed,
            sample_ids=sample_ids,
        )
        row, position = chosen.rows, positions[chosen.items]
        gold = codepoints[row, position]
        masked, replaced = chosen.fates()
        other = draw_unselected(counts, chosen.items, row, chosen.uniform("choice"))
        shown = np.where(replaced & (other >= 0), codepoints[row, positions[other]], gold)
        codepoints[row, position] = np.where(masked, MASK, shown)
        return {
            "codepoints": codepoints,
            "mask": window.mask,
            **chosen.targets(position, gold % config.buckets, target_kinds(masked, shown == gold)),
            "target_codepoints": chosen.laid_out(gold),
            "num_characters": window.end - window.begin,
        }
