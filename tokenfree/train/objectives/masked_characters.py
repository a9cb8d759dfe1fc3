"""Masked characters: single characters are masked and predicted, as in character BERT (arXiv 2103.06874, Table 2).

White space is neither masked nor predicted, so that bits per character are comparable with those of CANINE-C.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches.base import (
    Arrays,
    Collator,
    Rows,
    Symbols,
    character_capacity,
    character_symbols,
    draw_unselected,
    frame_whole_words,
    ragged_range,
    target_kinds,
)
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import MaskedHead, MaskedObjective, MaskingCollator, check_symbols

# Characters; cropping a long window does not cut words up to this length.
_LONGEST_WORD = 32


@settings
class Config(MaskedObjective):
    """BERT's loss over characters (arXiv 2103.06874, Table 2, row 3): predict masked characters.

    Attributes:
        max_predictions: maximum number of predicted characters of an example.
        buckets: number of classes, 1 to 0x110000. The class of a character is its codepoint modulo this.
        spare: positions always left as padding, so that more padding never changes an output; 0: none.
        next_sentence: split examples into two parts, and also predict whether the second part follows the
            first.
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
        room = character_capacity(length, self.spare)
        single = MaskedCharactersCollator(self, length, seed)
        return PairCollator(single, room, seed) if self.next_sentence else single

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        return check_symbols(self.name, model, "characters", instead="codepoint_hash")

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        return character_symbols(self.buckets)


class MaskedCharactersCollator(MaskingCollator):
    """Collator from windows to masked inputs and their targets.

    `mask_fraction` of the characters except white space are selected. Of these, 80% become MASK, and 10% a
    random character of the same window that is not selected. `target_codepoints`, int64 [b, P], holds the
    characters.
    """

    columns = ("codepoints", "whitespace")

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        config = self._config
        window = frame_whole_words(rows, _LONGEST_WORD, config.spare, self.length, self._seed, sample_ids)
        codepoints, of = window.codepoints, window.of
        first, last = np.maximum(window.starts, window.begin[of]), np.minimum(window.ends, window.end[of])
        size = np.maximum(last - first, 0)
        # Characters of words.
        counts = np.bincount(of, weights=size, minlength=len(codepoints)).astype(np.int64)
        positions = ragged_range(first - window.begin[of] + 1, size)
        chosen = self.select(counts, np.ones(len(positions), dtype=bool), sample_ids)
        row, position = chosen.rows, positions[chosen.items]
        gold = codepoints[row, position]
        masked, replaced = chosen.masked_and_replaced()
        other = draw_unselected(counts, chosen.items, row, chosen.uniform("choice"))
        visible_codepoints = np.where(replaced & (other >= 0), codepoints[row, positions[other]], gold)
        codepoints[row, position] = np.where(masked, MASK, visible_codepoints)
        return {
            "codepoints": codepoints,
            "mask": window.mask,
            **chosen.targets(
                position, gold % config.buckets, target_kinds(masked, visible_codepoints == gold)
            ),
            "target_codepoints": chosen.laid_out(gold),
            "num_characters": window.end - window.begin,
        }
