"""Inputs of words of bytes, such as Byte2Word reads them: a vector for each word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.framing import ragged_range
from tokenfree.train.batches.padding import round_up
from tokenfree.train.batches.text_words import text_words
from tokenfree.train.batches.word_framing import room_for_words
from tokenfree.train.model.embedders.word_bytes import CLS, SEP
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.inputs.text_inputs import NOWHERE, NUM_FRAME, TextSymbols, window_vectors

_BUCKET = 8  # of bytes; of words a quarter


class WordInputs:
    """See `tokenfree.train.tasks.inputs.text_inputs.TextInputs`.

    Args:
        model: whose downsampler takes words of the text.
        length: the most bytes of an input.
    """

    symbols = "words and bytes"

    def __init__(self, model: ModelConfig, length: int) -> None:
        self.length = length
        self._num_words, self._num_bytes = room_for_words(length, model.downsampler.bytes_per_word)

    def encode(self, text: str, before: str | None = None) -> TextSymbols:
        """A vector for each word; white space and what stands for special symbols have none.

        Args:
            text: to be read.
            before: see `text_words`.
        """
        utf8, starts, ends, vectors = text_words(text, before)
        sizes = ends - starts
        symbols = utf8[ragged_range(starts, sizes)]
        return TextSymbols(symbols.astype(np.int64), vectors, np.cumsum(sizes))

    def size(self, parts: Sequence[TextSymbols]) -> int:
        """Bytes; they stand for the words too."""
        return 1 + sum(len(part.symbols) + 1 for part in parts)

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """See `TextInputs.missing`."""
        words = sum(part.num_vectors + 1 for part in parts) + 1 - NUM_FRAME
        return max(0, self.size(parts) - NUM_FRAME - self._num_bytes, words - self._num_words)

    def cut(self, text: TextSymbols, stride: float) -> list[TextSymbols]:
        """See `TextInputs.cut`; windows begin and end with whole words."""
        ends = text.unit_ends
        assert ends is not None, "words"
        seen = text.vectors[text.vectors != NOWHERE]
        windows, start = list[TextSymbols](), 0
        while True:
            before = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends, before + self._num_bytes, side="right"))
            end = min(start + self._num_words, fitting)
            after = int(ends[end - 1])
            vectors = window_vectors(seen, start, end)
            windows.append(TextSymbols(text.symbols[before:after], vectors, ends[start:end] - before))
            if end == len(ends):
                return windows
            start += max(1, int((end - start) * stride))

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]]) -> Arrays:
        """See `TextInputs.arrays`."""
        most = max(sum(part.num_vectors + 1 for part in parts) + 1 for parts in inputs)
        num_units = min(round_up(most, _BUCKET // 4), self._num_words + NUM_FRAME)
        sizes = np.array([self.size(parts) for parts in inputs])
        length = round_up(int(sizes.max()), _BUCKET)
        codepoints, segments = (np.zeros((len(inputs), length), dtype=np.int64) for _ in range(2))
        unit_ends = np.repeat(sizes[:, None], num_units, axis=1)
        codepoints[:, 0], unit_ends[:, 0] = CLS, 1
        for row, parts in enumerate(inputs):
            at = unit = 1
            for number, part in enumerate(parts):
                assert part.unit_ends is not None, "words"
                end, last = at + len(part.symbols), unit + part.num_vectors
                codepoints[row, at:end], codepoints[row, end] = part.symbols, SEP
                segments[row, at : end + 1] = number
                unit_ends[row, unit:last], unit_ends[row, last] = at + part.unit_ends, end + 1
                at, unit = end + 1, last + 1
        arrays = {"codepoints": codepoints, "mask": np.arange(length) < sizes[:, None], "unit_ends": unit_ends}
        return arrays | ({"segments": segments} if len(inputs[0]) > 1 else {})

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """See `TextInputs.offsets`."""
        counts = np.array([part.num_vectors + 1 for part in parts])
        return (1 + np.cumsum(counts) - counts).tolist()
