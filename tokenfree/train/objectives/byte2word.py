"""Byte2Word: mask whole words of bytes, and predict all subwords of each (Lee, Guo, Qiu, arXiv 2211.12677).

Byte-fallback pieces and <unk> occupy slots but are not predicted, as in CANINE-S, so that losses are
comparable.
"""

import functools
from typing import Literal

import numpy as np

from tokenfree.core.settings import Positive, settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import BYTE_MASK
from tokenfree.train.batches.base import (
    KEPT,
    MASKED,
    REPLACED,
    Arrays,
    Rows,
    Selection,
    Symbols,
    draw_unselected,
    letters_of,
    needed_pieces,
    predictable,
    ragged_range,
)
from tokenfree.train.batches.words import (
    NUM_FRAME,
    SubwordsAsWords,
    Words,
    WordsByRules,
    WordSource,
    crop_words,
    frame_words,
    word_capacity,
)
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import MaskedHead, MaskingCollator, SubwordOutput, check_symbols


@settings
class Config(SubwordOutput):
    """Byte2Word's loss (Lee, Guo, Qiu, arXiv 2211.12677, section 3): predict the subwords of masked words of bytes.

    15% of the words are selected by default. Of these, 80% are masked, 10% replaced and 10% kept, as in BERT.

    Attributes:
        words: definition of a word. `rules`: words of the text by the rules of
            `tokenfree.preprocess.text.words`; `subwords`: pseudo-words, the subwords that BERT reads, spelled
            in bytes.
        max_predictions: maximum number of predicted subwords of an example.
        max_pieces: maximum number of predicted subwords of a word; later ones are not predicted.
        bytes_per_word: number of input bytes per word; must equal `model.downsampler.bytes_per_word`. An
            input has room for `train.length` / bytes_per_word words, including CLS and SEP.
        lower_case: lower-case words before they are tokenised, for vocabularies without capitals, such as the
            paper's.
    """

    name: Literal["byte2word"] = "byte2word"
    words: Literal["rules", "subwords"] = "rules"
    max_predictions: Positive = 160
    max_pieces: Positive = 16
    bytes_per_word: Positive = 8
    lower_case: bool = False

    def build(self, width: int, vocabulary_size: int) -> MaskedHead:
        return MaskedHead(width, vocabulary_size, spelled=self.output_rows == "spelled")

    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> "Byte2WordCollator":
        pieces = needed_pieces(self.name, vocabulary)
        return Byte2WordCollator(self, self._source(vocabulary), pieces, length, seed)

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        problems = check_symbols(self.name, model, "bytes", instead="word_bytes")
        down, up = model.downsampler, model.upsampler
        other = "or choose another objective"
        if down.bytes_per_word is None:
            problems.append(
                f"model.downsampler.name: {down.name} makes units of its own, but objective.name: {self.name} gives it "
                f"words; set model.downsampler.name to word_pooling or character_cnn, {other}"
            )
        elif down.bytes_per_word != self.bytes_per_word:
            problems.append(
                f"objective.bytes_per_word: {self.bytes_per_word} is not model.downsampler.bytes_per_word, "
                f"{down.bytes_per_word}; make them equal"
            )
        if up.max_pieces is None:
            problems.append(
                f"model.upsampler.name: {up.name} makes one vector of a word, but objective.name: {self.name} predicts "
                f"several subwords of it; set model.upsampler.name to subword_queries, {other}"
            )
        elif up.max_pieces < self.max_pieces:
            problems.append(
                f"objective.max_pieces: {self.max_pieces} is more than model.upsampler.max_pieces, {up.max_pieces}; "
                "lower it or raise the other"
            )
        return problems

    @property
    def gives_words(self) -> bool:
        return self.words == "rules"

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        if vocabulary is None:
            return None
        source, last = self._source(vocabulary), self.max_pieces - 1

        def read(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
            words = source.words(rows)
            ids, num_pieces = source.pieces(rows, words, np.arange(len(words.starts)))
            return ids, np.minimum(ragged_range(np.zeros_like(num_pieces), num_pieces), last)

        pieces = vocabulary.pieces
        letters = letters_of(pieces)
        return Symbols(
            name="subword",
            columns=source.columns,
            usable=predictable(pieces),
            read=read,
            clue="its place in its word",
            # The input reveals it: each slot has a query.
            clues=lambda arrays: arrays["target_positions"][:, :, 1],
            codepoints=lambda arrays: letters[arrays["target_ids"]],
        )

    def _source(self, vocabulary: Vocabulary | None) -> WordSource:
        needed_pieces(self.name, vocabulary)
        assert vocabulary is not None
        if self.words == "subwords":
            return SubwordsAsWords(vocabulary)
        return WordsByRules(vocabulary, lower_case=self.lower_case)


class Byte2WordCollator(MaskingCollator):
    """Collator from windows to masked words of bytes and their subwords.

    `mask_fraction` of the words of a window are drawn, rounded, at least one. Those with a predictable
    subword are targets, until their subwords would exceed `max_predictions`. 80% of these become the single
    byte MASK, 10% another word of the window, and 10% stay unchanged. The paper does not say where
    replacements come from; these do not depend on how a batch is divided. If they make a row too long, its
    replaced words stay unchanged. From a window with too many words, a run from a random word on is used.

    `unit_ends`, int64 [b, length / bytes_per_word], holds the ends of words. `target_positions`, int64 [b, P,
    2], holds pairs of a word and a subword slot in it.
    """

    def __init__(self, config: Config, source: WordSource, pieces: list[str], length: int, seed: int) -> None:
        super().__init__(config, length, seed)
        self.columns = source.columns
        self._source, self._pieces = source, pieces
        self._num_words, self._num_bytes = word_capacity(length, config.bytes_per_word)

    @functools.cached_property
    def _usable(self) -> np.ndarray:
        # On first use, because a sweep makes a collator for each setting only to ask for its columns.
        return predictable(self._pieces)

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        words = self._source.words(rows)
        first, counts = crop_words(words, self._num_words, self._num_bytes, self._seed, sample_ids)
        chosen, targets = self._select(rows, words, first, counts, sample_ids)
        used = ragged_range(first, counts)
        starts, sizes = words.starts[used], words.sizes[used]
        kinds = self._change(chosen, len(words.text), counts, starts, sizes)
        text = np.append(words.text, np.uint8(BYTE_MASK))
        framed = frame_words(text, starts, sizes, counts, self.length, self._num_words + NUM_FRAME)
        word = (np.cumsum(counts) - counts)[:, None] + targets["target_positions"][:, :, 0] - 1
        return {
            **framed._asdict(),
            **targets,
            "target_kinds": np.append(kinds, 0)[np.where(targets["target_mask"], word, len(kinds))],
            "num_characters": _num_characters(words, first, counts),
        }

    def _select(
        self, rows: Rows, words: Words, first: np.ndarray, counts: np.ndarray, sample_ids: np.ndarray
    ) -> tuple[Selection, Arrays]:
        config, max_targets = self._config, self._config.max_predictions
        chosen = self.select(
            counts, np.ones(int(counts.sum()), dtype=bool), sample_ids, max_selected=self._num_words
        )
        row, item = chosen.rows, chosen.items
        unit = item - (np.cumsum(counts) - counts)[row]
        ids, num_pieces = self._source.pieces(rows, words, first[row] + unit)
        of = np.repeat(np.arange(len(item)), num_pieces)
        slot = ragged_range(np.zeros_like(num_pieces), num_pieces)
        is_target = self._usable[ids] & (slot < min(config.max_pieces, max_targets))

        # Cumulative number of targets in each row, in the order of the draws.
        num_targets = np.bincount(of[is_target], minlength=len(item))
        of_rows = np.bincount(row, weights=num_targets, minlength=len(counts)).astype(np.int64)
        after = np.cumsum(num_targets) - (np.cumsum(of_rows) - of_rows)[row]
        kept = (num_targets > 0) & (after <= max_targets)
        is_target &= kept[of]

        of, slot, ids = of[is_target], slot[is_target], ids[is_target]
        targets_per_row = np.bincount(row[of], minlength=len(counts))
        at = (row[of], np.arange(len(of)) - (np.cumsum(targets_per_row) - targets_per_row)[row[of]])
        positions = np.zeros((len(counts), max_targets, 2), dtype=np.int64)
        target_ids = np.zeros((len(counts), max_targets), dtype=np.int64)
        # CLS is word 0.
        positions[at] = np.stack([unit[of] + 1, slot], axis=1)
        target_ids[at] = ids
        targets = {
            "target_positions": positions,
            "target_ids": target_ids,
            "target_mask": np.arange(max_targets) < targets_per_row[:, None],
        }
        return chosen.only(kept), targets

    def _change(
        self, selection: Selection, mask_at: int, counts: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Mask, replace or keep words in place, and return their kinds, int64 [counts.sum()].

        MASK is at `mask_at`.
        """
        kinds = np.full(len(starts), KEPT)
        row, item = selection.rows, selection.items
        masked, replaced = selection.masked_and_replaced()
        other = draw_unselected(counts, item, row, selection.uniform("choice"))
        hidden = item[masked]
        starts[hidden], sizes[hidden], kinds[hidden] = mask_at, 1, MASKED
        chosen = replaced & (other >= 0)
        row, item, other = row[chosen], item[chosen], other[chosen]
        gained = sizes[other]
        of = np.repeat(np.arange(len(counts)), counts)
        totals = np.bincount(of, weights=sizes, minlength=len(counts))
        totals += np.bincount(row, weights=gained - sizes[item], minlength=len(counts))
        fits = totals[row] <= self._num_bytes
        starts[item[fits]], sizes[item[fits]] = starts[other[fits]], gained[fits]
        kinds[item[fits]] = REPLACED
        return kinds


def _num_characters(words: Words, first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    starts = np.append(words.starts, 0)[first]
    ends = np.where(counts > 0, np.append(words.ends, 0)[first + counts - 1], starts)
    # The first byte of each character.
    leads = words.text & 0xC0 != 0x80
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([np.count_nonzero(leads[start:end]) for start, end in spans], dtype=np.int64)
