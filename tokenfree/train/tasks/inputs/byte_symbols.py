"""Inputs of a byte of UTF-8 a position."""

from __future__ import annotations

import numpy as np

from tokenfree.train.model.embedders.word_bytes import CLS as BYTE_CLS
from tokenfree.train.model.embedders.word_bytes import MASK, UNK
from tokenfree.train.model.embedders.word_bytes import SEP as BYTE_SEP
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.inputs.symbols import SymbolInputs
from tokenfree.train.tasks.inputs.text_inputs import TextSymbols


class ByteInputs(SymbolInputs):
    """Inputs of bytes; what stands for special symbols, U+0000 to U+0004, becomes UNK."""

    symbols = "bytes"

    def __init__(self, model: ModelConfig, length: int) -> None:
        super().__init__(model, length, cls=BYTE_CLS, sep=BYTE_SEP)

    def encode_chunk(self, text: str) -> TextSymbols:
        """A vector for each byte; that of a character is the one of its first byte."""
        encoded = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        is_first = (encoded & 0xC0) != 0x80
        return TextSymbols(np.where(encoded <= MASK, UNK, encoded), np.flatnonzero(is_first))
