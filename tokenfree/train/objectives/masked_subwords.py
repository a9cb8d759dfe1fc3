"""Masked subwords with subword input (BERT, Devlin et al. 2019): the model that CANINE is compared with.

With a vocabulary of V pieces, CLS, SEP and MASK have the ids V, V + 1 and V + 2. With a tied output layer,
these rows are classes, too. Byte-fallback pieces and <unk> are not predicted, so that losses are comparable.
"""

import functools
from typing import Literal

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.core.settings import Positive, settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import NUM_SUBWORD_SPECIALS, of_subwords
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import (
    Arrays,
    Collator,
    Rows,
    Symbols,
    needed_pieces,
    predictable,
    subword_symbols,
    target_kinds,
)
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import MaskedHead, MaskingCollator, SubwordOutput, check_symbols


@settings
class Config(SubwordOutput):
    """BERT's loss (Devlin et al. 2019, section 3.1): predict masked subwords.

    Attributes:
        max_predictions: maximum number of predicted subwords of an example.
        next_sentence: split examples into two parts, and also predict whether the second part follows the
            first.
        tied: use the embedder's table as the output layer.
    """

    name: Literal["masked_subwords"] = "masked_subwords"
    max_predictions: Positive = 80
    next_sentence: bool = False
    tied: bool = False

    def build(self, width: int, vocabulary_size: int) -> MaskedHead:
        size = vocabulary_size + NUM_SUBWORD_SPECIALS if self.tied else vocabulary_size
        return MaskedHead(
            width,
            size,
            spelled=self.output_rows == "spelled",
            tied=self.tied,
            next_sentence=self.next_sentence,
        )

    def vocabulary_size(self, model: ModelConfig) -> int | None:
        return model.embedder.size - NUM_SUBWORD_SPECIALS

    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        pieces = needed_pieces(self.name, vocabulary)
        if length < 3:
            raise UserError(f"train.length: {length} leaves no subword; make it at least 3")
        single = MaskedSubwordsCollator(self, pieces, length, seed)
        if not self.next_sentence:
            return single
        return PairCollator(
            single, length - 2, seed, units="subword_ids", separator=of_subwords(len(pieces)).sep
        )

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        problems = check_symbols(self.name, model, "subwords", instead="subword_table")
        if self.tied and (self.output_rows != "free" or self.output_bias != "zeros"):
            problems.append(
                "objective.tied: the embedder's table has neither spelled rows nor a bias from frequencies. Set it to "
                "false, or leave out objective.output_rows and objective.output_bias"
            )
        width = model.dimensions.character_width
        if not problems and self.tied and width != model.width:
            problems.append(
                f"objective.tied: the embedder's table is {width} wide and model.width is {model.width}; leave out "
                "model.character_width or set objective.tied to false"
            )
        if problems or vocabulary is None:
            return problems
        needed = vocabulary.size + NUM_SUBWORD_SPECIALS
        if model.embedder.size < needed:
            problems.append(
                f"model.embedder.size: {model.embedder.size} rows are too few for the {vocabulary.size} subwords of "
                f"the data and CLS, SEP and MASK; set it to {needed}"
            )
        return problems

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        return None if vocabulary is None else subword_symbols(vocabulary, as_characters=False)


class MaskedSubwordsCollator(MaskingCollator):
    """Collator from windows to masked inputs of subword ids, [CLS] ids [SEP], and their targets.

    `mask_fraction` of the subwords of a window are selected. Of these, 80% become MASK, and 10% a random
    subword of the vocabulary. If a window has more subwords than fit, a run from a random one on is used.
    """

    columns = ("subword_ids", "subword_starts", "subword_ends")

    def __init__(self, config: Config, pieces: list[str], length: int, seed: int) -> None:
        super().__init__(config, length, seed)
        self._pieces, self._specials = pieces, of_subwords(len(pieces))

    @functools.cached_property
    def _usable(self) -> np.ndarray:
        # On first use, because a sweep makes a collator for each setting only to ask for its columns.
        return np.append(predictable(self._pieces), np.zeros(NUM_SUBWORD_SPECIALS, dtype=bool))

    @functools.cached_property
    def _replacements(self) -> np.ndarray:
        return np.flatnonzero(self._usable)

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        windows = rows["subword_ids"]
        sizes = np.array([len(window) for window in windows])
        counts = np.minimum(sizes, self.length - 2)
        drawn = random.uniform(self._seed, "crop", sample_ids, 1)[:, 0]
        begin = (drawn * (sizes - counts + 1)).astype(np.int64)
        ids = np.zeros((len(windows), self.length), dtype=np.int64)
        places = np.arange(self.length)
        mask = places < counts[:, None] + 2
        inner = (places > 0) & (places <= counts[:, None])
        ids[inner] = np.concatenate(
            [window[at : at + count] for window, at, count in zip(windows, begin, counts, strict=True)]
        )
        chosen = self.select(counts, self._usable[ids[inner]], sample_ids)
        ids[:, 0] = self._specials.cls
        ids[np.arange(len(ids)), counts + 1] = self._specials.sep
        row, position = chosen.rows, chosen.items - (np.cumsum(counts) - counts)[chosen.rows] + 1
        gold = ids[row, position]
        masked, replaced = chosen.masked_and_replaced()
        visible_ids = gold.copy()
        if len(gold):
            number = (chosen.uniform("choice") * len(self._replacements)).astype(np.int64)
            visible_ids = np.where(replaced, self._replacements[number], gold)
        ids[row, position] = np.where(masked, self._specials.mask, visible_ids)
        return {
            "codepoints": ids,
            "mask": mask,
            **chosen.targets(position, gold, target_kinds(masked, visible_ids == gold)),
            "num_characters": _num_characters(rows, begin, counts),
        }


def _num_characters(rows: Rows, begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    spans = zip(rows["subword_starts"], rows["subword_ends"], begin.tolist(), counts.tolist(), strict=True)
    sizes = (int(ends[at + count - 1]) - int(starts[at]) if count else 0 for starts, ends, at, count in spans)
    return np.fromiter(sizes, dtype=np.int64, count=len(counts))
