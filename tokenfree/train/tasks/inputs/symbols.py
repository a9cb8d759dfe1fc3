"""Inputs of a symbol a position: characters, or subwords of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.features.vocabulary import MAX_TEXT_CHARACTERS, Vocabulary
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.framing import CLS, SEP
from tokenfree.train.batches.padding import Padding
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.inputs.text_inputs import NOWHERE, NUM_FRAME, TextSymbols, joined

_BUCKET = 8  # lengths of batches are multiples of this
_FORBIDDEN = (0x0000, *range(0xE000, 0xE033))  # codepoints that mean something else to the model
_REPLACEMENT = 0xFFFD


class SymbolInputs:
    """See `tokenfree.train.tasks.inputs.text_inputs.TextInputs`; a subclass says what symbols are.

    Args:
        model: that reads them.
        length: the most positions of an input.
        cls, sep: the special symbols.

    Raises:
        UserError: no text fits into `length`.
    """

    symbols = "symbols"
    chunk = 4096  # characters that are encoded at once

    def __init__(self, model: ModelConfig, length: int, *, cls: int, sep: int) -> None:
        self.length = length
        self._padding = Padding(model, length, bucket=_BUCKET)
        self._room = self._padding.length - self._padding.spare
        self._cls, self._sep = cls, sep
        if self._room <= NUM_FRAME:
            raise UserError(
                f"train.length: {length} positions leave none for text; make it at least "
                f"{NUM_FRAME + self._padding.spare + 1}"
            )

    def encode(self, text: str, before: str | None = None) -> TextSymbols:
        """See `TextInputs.encode`."""
        return joined(self.chunks(text, before))

    def chunks(self, text: str, before: str | None = None) -> Iterator[TextSymbols]:
        """See `TextInputs.chunks`."""
        for start in range(0, max(1, len(text)), self.chunk):
            yield self.encode_chunk(text[start : start + self.chunk])

    def encode_chunk(self, text: str) -> TextSymbols:
        """At most `chunk` characters as the model reads them."""
        raise NotImplementedError

    def size(self, parts: Sequence[TextSymbols]) -> int:
        """See `TextInputs.size`."""
        return 1 + sum(len(part.symbols) + 1 for part in parts)

    def missing(self, parts: Sequence[TextSymbols]) -> int:
        """See `TextInputs.missing`."""
        return max(0, self.size(parts) - self._room)

    def fitting(self, text: TextSymbols) -> int:
        """See `TextInputs.fitting`."""
        return min(len(text.symbols), self._room - NUM_FRAME)

    def arrays(self, inputs: Sequence[Sequence[TextSymbols]]) -> Arrays:
        """See `TextInputs.arrays`."""
        sizes = np.array([self.size(parts) for parts in inputs])
        length = self._padding.padded(sizes.tolist())
        codepoints, segments = (np.zeros((len(inputs), length), dtype=np.int64) for _ in range(2))
        codepoints[:, 0] = self._cls
        for row, parts in enumerate(inputs):
            for number, (part, offset) in enumerate(zip(parts, self.offsets(parts), strict=True)):
                end = offset + len(part.symbols)
                codepoints[row, offset:end] = part.symbols
                codepoints[row, end] = self._sep
                segments[row, offset : end + 1] = number
        arrays = {"codepoints": codepoints, "mask": np.arange(length) < sizes[:, None]}
        return arrays | ({"segments": segments} if len(inputs[0]) > 1 else {})

    def offsets(self, parts: Sequence[TextSymbols]) -> list[int]:
        """See `TextInputs.offsets`."""
        sizes = np.array([len(part.symbols) + 1 for part in parts])
        return (1 + np.cumsum(sizes) - sizes).tolist()


class CharacterInputs(SymbolInputs):
    """Inputs of characters as they are; what stands for special symbols becomes U+FFFD."""

    symbols = "characters"

    def __init__(self, model: ModelConfig, length: int) -> None:
        super().__init__(model, length, cls=CLS, sep=SEP)

    def encode_chunk(self, text: str) -> TextSymbols:
        """A vector for each character."""
        codepoints = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").copy()
        codepoints[np.isin(codepoints, _FORBIDDEN)] = _REPLACEMENT
        return TextSymbols(codepoints, np.arange(len(codepoints)))


class SubwordInputs(SymbolInputs):
    """Inputs of the ids of subwords; CLS, SEP and MASK come behind those of the vocabulary."""

    symbols = "subwords"
    chunk = MAX_TEXT_CHARACTERS

    def __init__(self, model: ModelConfig, length: int, vocabulary: Vocabulary) -> None:
        super().__init__(model, length, cls=vocabulary.size, sep=vocabulary.size + 1)
        self._vocabulary = vocabulary

    def encode_chunk(self, text: str) -> TextSymbols:
        """A vector for each subword; white space has none."""
        (encoding,) = self._vocabulary.encode_batch([_clean(text)])
        vectors = np.full(len(text), NOWHERE)
        spans = zip(encoding.starts.tolist(), encoding.ends.tolist(), strict=True)
        for place, (start, end) in reversed(list(enumerate(spans))):  # the first of those of a character
            vectors[start:end] = place
        return TextSymbols(encoding.ids, vectors)


def _clean(text: str) -> str:
    """The text without lone surrogates, which SentencePiece does not take, at the same length."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if not _is_valid(text) else text


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
