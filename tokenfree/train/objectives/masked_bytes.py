"""Masked bytes: single bytes are masked and predicted, in a BERT with ByT5's input.

ByT5 (arXiv 2105.13626) masks spans, which a decoder spells out. This objective needs only an encoder.
"""

from typing import Literal

import numpy as np

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import BYTE_MASK, BYTE_UNK, BYTES, CLS, MASK, SEP
from tokenfree.train.batches.base import (
    Arrays,
    Collator,
    Rows,
    Symbols,
    character_capacity,
    character_symbols,
    target_kinds,
)
from tokenfree.train.model.embedders.byte_table import NUM_BYTES
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives import masked_characters
from tokenfree.train.objectives.base import MaskedHead, MaskedObjective, check_symbols

_LETTER = ord("a")


@settings
class Config(MaskedObjective):
    """BERT's loss over UTF-8 bytes, for encoders with the same input as ByT5 (Xue et al., arXiv 2105.13626).

    Attributes:
        max_predictions: maximum number of predicted bytes of an example.
        spare: positions always left as padding, so that more padding never changes an output; 0: none.
    """

    name: Literal["masked_bytes"] = "masked_bytes"
    max_predictions: Positive = 320
    spare: NonNegative = 0

    def build(self, width: int, vocabulary_size: int) -> MaskedHead:
        return MaskedHead(width, NUM_BYTES)

    def vocabulary_size(self, model: ModelConfig) -> int | None:
        return 0

    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> "MaskedBytesCollator":
        character_capacity(length, self.spare)
        return MaskedBytesCollator(self, length, seed)

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        problems = check_symbols(self.name, model, "bytes", instead="byte_table")
        if model.downsampler.bytes_per_word is not None:
            problems.append(
                f"model.downsampler.name: {model.downsampler.name} needs words, but objective.name: {self.name} gives "
                "none; set model.downsampler.name to identity, or choose another objective"
            )
        return problems

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        characters = character_symbols(NUM_BYTES)

        def clues(arrays: Arrays) -> np.ndarray:
            """Return the clues of characters, with a letter for each byte of a character of several bytes."""
            input_bytes = arrays["codepoints"]
            frame = np.isin(input_bytes, (BYTES.cls, BYTES.sep))
            return characters.clues(
                {**arrays, "codepoints": np.select([frame, input_bytes >= 0x80], [SEP, _LETTER], input_bytes)}
            )

        return characters._replace(
            name="byte", read=lambda rows: characters.read(_in_bytes(rows)), clues=clues
        )


class MaskedBytesCollator(Collator):
    """Collator from windows to masked inputs and their targets, as in `masked_characters`, with a position per byte.

    White space of one byte is neither masked nor predicted. `target_codepoints` holds the characters that the
    targets are bytes of. `num_characters` counts the characters that begin in the input.
    """

    columns = ("codepoints", "whitespace")

    def __init__(self, config: Config, length: int, seed: int) -> None:
        self.length = length
        of_bytes = masked_characters.Config(
            mask_fraction=config.mask_fraction,
            max_predictions=config.max_predictions,
            buckets=NUM_BYTES,
            spare=config.spare,
        )
        self._collate = masked_characters.MaskedCharactersCollator(of_bytes, length, seed)

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        arrays = self._collate(_in_bytes(rows), sample_ids)
        symbols, positions, real = arrays["codepoints"], arrays["target_positions"], arrays["target_mask"]
        special = [~arrays["mask"], symbols == CLS, symbols == SEP, symbols == MASK]
        text = np.where(symbols & 0xFF <= BYTE_MASK, BYTE_UNK, symbols & 0xFF)
        input_bytes = np.select(special, BYTES, text)

        whole = text.copy()
        whole[np.nonzero(real)[0], positions[real]] = arrays["target_ids"][real]
        begins = arrays["mask"] & (whole & 0xC0 != 0x80)
        at_targets = np.take_along_axis(input_bytes, positions, axis=1)
        kinds = target_kinds(at_targets == BYTE_MASK, at_targets == arrays["target_ids"])
        return {
            **arrays,
            "codepoints": input_bytes,
            "target_codepoints": arrays["target_codepoints"] >> 8,
            "target_kinds": kinds * real,
            "num_characters": begins.sum(axis=1) - 2,  # without CLS and SEP
        }


def _in_bytes(rows: Rows) -> Rows:
    """Return rows with one symbol per UTF-8 byte: 256 times its character, plus the byte."""
    columns: dict[str, list[np.ndarray]] = {"codepoints": [], "whitespace": []}
    for codepoints, white in zip(rows["codepoints"], rows["whitespace"], strict=True):
        encoded = codepoints.astype("<u4").tobytes().decode("utf-32-le").encode()
        sizes = 1 + sum((codepoints >= first).astype(np.int64) for first in (0x80, 0x800, 0x10000))
        of = np.repeat(codepoints.astype(np.int64), sizes)
        columns["codepoints"].append(of << 8 | np.frombuffer(encoded, dtype=np.uint8))
        columns["whitespace"].append(np.repeat(white, sizes) & (of < 0x80))
    return columns
