"""CANINE-S: predict the identity of masked subwords, each at one of its characters (arXiv 2103.06874, section 3.2).

Byte-fallback pieces and <unk> are never selected, predicted or used as replacements, because their characters
have no single identity.
"""

import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches.base import (
    HIDDEN,
    Arrays,
    Collator,
    Pool,
    Rows,
    Selection,
    Symbols,
    character_capacity,
    crop,
    frame,
    needed_pieces,
    neighbours_of,
    ragged_range,
    subword_symbols,
    target_kinds,
)
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.batches.ngrams import path_targets, target_ngrams
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import MaskedHead, MaskingCollator, SubwordOutput, check_symbols


@settings
class Config(SubwordOutput):
    """CANINE-S's loss (Clark et al., arXiv 2103.06874, section 3.2): predict masked subwords from characters.

    Attributes:
        max_predictions: maximum number of predicted subwords of an example.
        spare: positions always left as padding, so that more padding never changes an output: a group of 4
            and 2 more.
        next_sentence: split examples into two parts, and also predict whether the second part follows the
            first.
    """

    name: Literal["canine_s"] = "canine_s"
    max_predictions: Positive = 80
    spare: NonNegative = 6
    next_sentence: bool = False

    @property
    def takes_neighbours(self) -> bool:
        return not self.next_sentence

    def build(self, width: int, vocabulary_size: int) -> MaskedHead:
        return MaskedHead(
            width,
            vocabulary_size,
            spelled=self.output_rows == "spelled",
            next_sentence=self.next_sentence,
            mask_fraction=self.mask_fraction,
        )

    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        room = character_capacity(length, self.spare)
        single = CanineSCollator(self, needed_pieces(self.name, vocabulary), length, seed)
        return PairCollator(single, room, seed) if self.next_sentence else single

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        return check_symbols(self.name, model, "characters", instead="codepoint_hash")

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        return None if vocabulary is None else subword_symbols(vocabulary, as_characters=True)


class CanineSCollator(MaskingCollator):
    """Collator from windows to masked inputs and their targets.

    `mask_fraction` of the subwords of a window are selected. In 80% of them, all characters become MASK.
    Another 10% become a random subword of the same number of characters, which begins a word if and only if
    the original does.
    """

    columns = ("codepoints", "subword_ids", "subword_starts", "subword_ends")

    def __init__(self, config: Config, pieces: Sequence[str], length: int, seed: int) -> None:
        super().__init__(config, length, seed)
        self._pieces = pieces

    @functools.cached_property
    def _pool(self) -> Pool:
        # On first use, because a sweep makes a collator for each setting only to ask for its columns.
        return Pool(self._pieces)

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        windows, row_starts, row_ends = rows["codepoints"], rows["subword_starts"], rows["subword_ends"]
        begin, end = crop(
            windows, row_starts, row_ends, self.length - 2 - self._config.spare, self._seed, sample_ids
        )
        codepoints, mask = frame(windows, begin, end, self.length)
        counts = np.array([len(row) for row in row_starts])
        ids, starts, ends = (
            np.concatenate(parts).astype(np.int64) for parts in (rows["subword_ids"], row_starts, row_ends)
        )
        # The row of each subword.
        of = np.repeat(np.arange(len(counts)), counts)
        usable = self._pool.usable[ids] & (starts >= begin[of]) & (ends <= end[of])
        chosen = self.select(counts, usable, sample_ids)
        gold = ids[chosen.items]
        first = starts[chosen.items] - begin[chosen.rows] + 1
        size = ends[chosen.items] - starts[chosen.items]
        masked, replaced = chosen.masked_and_replaced()
        flat, line = codepoints.reshape(-1), first + chosen.rows * self.length
        flat[ragged_range(line[masked], size[masked])] = MASK
        visible_ids = gold.copy()
        visible_ids[replaced] = self._replace(
            flat, line[replaced], size[replaced], gold[replaced], chosen.uniform("choice")[replaced]
        )
        positions = first + (chosen.uniform("place") * size).astype(np.int64)
        arrays = {
            "codepoints": codepoints,
            "mask": mask,
            **chosen.targets(positions, gold, target_kinds(masked, visible_ids == gold)),
            "num_characters": end - begin,
        }
        if self.names_neighbours:
            arrays |= _neighbours(ids, counts, chosen) | {"target_sizes": chosen.laid_out(size)}
        if not self.reads_ngrams:
            return arrays
        original, _ = frame(windows, begin, end, self.length)
        rows_of, sizes = of[usable], (ends - starts)[usable]
        places = starts[usable] - begin[rows_of] + 1
        path = path_targets(original, rows_of, places, sizes, ids[usable], sample_ids, self._seed)
        return arrays | path | {"target_ngrams": target_ngrams(arrays)}

    def _replace(
        self, flat: np.ndarray, first: np.ndarray, size: np.ndarray, gold: np.ndarray, choice: np.ndarray
    ) -> np.ndarray:
        """Replace the subwords that begin at `first`, and return the new ids; `gold` where no replacement exists."""
        new = self._pool.draw(gold, size, choice)
        has_replacement = new >= 0
        source = ragged_range(self._pool.first[new[has_replacement]], size[has_replacement])
        flat[ragged_range(first[has_replacement], size[has_replacement])] = self._pool.characters[source]
        return np.where(has_replacement, new, gold)


def _neighbours(ids: np.ndarray, counts: np.ndarray, chosen: Selection) -> Arrays:
    hidden = np.zeros(len(ids), dtype=bool)
    hidden[chosen.items] = True
    sides = neighbours_of(np.where(hidden, HIDDEN, ids), counts)
    names = ("target_left", "target_right")
    return {name: chosen.laid_out(side[chosen.items]) for name, side in zip(names, sides, strict=True)}
