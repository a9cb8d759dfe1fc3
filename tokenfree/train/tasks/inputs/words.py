"""Inputs of words of bytes, such as Byte2Word reads them: a vector for each word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.framing import ragged_range
from tokenfree.train.batches.padding import round_up
from tokenfree.train.batches.text_words import text_words
from tokenfree.train.batches.word_framing import room_for_words
from tokenfree.train.model.embedders.word_bytes import CLS as BYTE_CLS
from tokenfree.train.model.embedders.word_bytes import SEP as BYTE_SEP
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.inputs.text_inputs import NUM_FRAME, TextSymbols, joined

_BUCKET = 8  # of bytes; of words a quarter
_CHUNK = 4096  # characters that are encoded at once


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
        return joined(self.chunks(text, before))

    def chunks(self, text: str, before: str | None = None) -> Iterator[TextSymbols]:
        """See `TextInputs.chunks`; a word that may go on is left to the next one."""
        stop = 0
        while True:
            start, stop = stop, min(len(text), stop + _CHUNK)
            utf8, starts, ends, vectors = text_words(text[start:stop], before and before[start:stop])
            if stop < len(text) and len(starts) > 1 and not text[stop - 1].isspace():
                starts, ends = starts[:-1], ends[:-1]
                vectors = vectors[: int(np.argmax(vectors == len(starts)))]
                stop = start + len(vectors)
            sizes = ends - starts
            yield TextSymbols(utf8[ragged_range(starts, sizes)], vectors, np.cumsum(sizes))
            if stop == len(text):
                return

    def size(self, parts: Sequence[TextSymbols]) -> int:
        """Bytes; they stand for the words too."""
        return 1 + sum(len(part.symbols) + 1 for part in parts)

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """See `TextInputs.missing`."""
        words = sum(part.num_vectors + 1 for part in parts) + 1 - NUM_FRAME
        return max(0, self.size(parts) - NUM_FRAME - self._num_bytes, words - self._num_words)

    def fitting(self, text: TextSymbols) -> int:
        """See `TextInputs.fitting`; windows begin and end with whole words."""
        ends = text.unit_ends
        assert ends is not None, "words"
        return min(self._num_words, int(np.searchsorted(ends, self._num_bytes, side="right")))

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]]) -> Arrays:
        """See `TextInputs.arrays`."""
        most = max(sum(part.num_vectors + 1 for part in parts) + 1 for parts in inputs)
        num_units = min(round_up(most, _BUCKET // 4), self._num_words + NUM_FRAME)
        sizes = np.array([self.size(parts) for parts in inputs])
        length = round_up(int(sizes.max()), _BUCKET)
        codepoints, segments = (np.zeros((len(inputs), length), dtype=np.int64) for _ in range(2))
        unit_ends = np.repeat(sizes[:, None], num_units, axis=1)
        codepoints[:, 0], unit_ends[:, 0] = BYTE_CLS, 1
        for row, parts in enumerate(inputs):
            at = unit = 1
            for number, part in enumerate(parts):
                assert part.unit_ends is not None, "words"
                end, last = at + len(part.symbols), unit + part.num_vectors
                codepoints[row, at:end], codepoints[row, end] = part.symbols, BYTE_SEP
                segments[row, at : end + 1] = number
                unit_ends[row, unit:last], unit_ends[row, last] = at + part.unit_ends, end + 1
                at, unit = end + 1, last + 1
        arrays = {"codepoints": codepoints, "mask": np.arange(length) < sizes[:, None], "unit_ends": unit_ends}
        return arrays | ({"segments": segments} if len(inputs[0]) > 1 else {})

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """See `TextInputs.offsets`."""
        counts = np.array([part.num_vectors + 1 for part in parts])
        return (1 + np.cumsum(counts) - counts).tolist()
