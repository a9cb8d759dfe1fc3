"""An encoder with named tensors as inputs and outputs, and its graph in ONNX for any batch and any length.

The parts of the model know of exporting where their steps depend on a length (`torch.compiler.is_exporting`).

B batch, C characters (or bytes, or subwords), U units, D width
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.inference.text_encoder import Encoded
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.model.upsamplers.identity import gather_rows

NEEDED = ("onnx", "onnxscript")
INSTALL = "pip install 'tokenfree[onnx]'"


class EncoderGraph(nn.Module):
    """What a graph computes: Y and the vectors of whole texts, by their names in `Encoded`.

    Inputs are those of `Encoder.forward`: `codepoints`, `mask` and, for encoders of words of bytes, `unit_ends`. Of
    these the vectors of `words` come out, for the others those of `characters`; `pooled` only where it is trained.
    """

    def __init__(self, encoder: Encoder, *, pooled_is_trained: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.reads_words = encoder.config.downsampler.bytes_per_word is not None
        self.input_names = ("codepoints", "mask", "unit_ends") if self.reads_words else ("codepoints", "mask")
        vectors = ("words", "word_mask") if self.reads_words else ("characters",)
        self.output_names = (*vectors, "cls", "mean", "cls_max", *(("pooled",) if pooled_is_trained else ()))
        self.eval()

    def forward(self, codepoints: Tensor, mask: Tensor, unit_ends: Tensor | None = None) -> tuple[Tensor, ...]:
        """The outputs in the order of their names, for int64 codepoints [B, C], bool mask and int64 ends [B, U]."""
        if unit_ends is None:
            output = self.encoder(codepoints, mask)
            encoded = Encoded(output.characters, mask, output.pooled, output.units[:, 0])
        else:
            encoded = self._of_words(codepoints, mask, unit_ends)
        return tuple(getattr(encoded, name) for name in self.output_names)

    def _of_words(self, codepoints_BC: Tensor, mask_BC: Tensor, unit_ends_BU: Tensor) -> Encoded:
        """As of a `WordEncoder`: the vector of a character is that of its word, and stands at its first byte."""
        down, units_BUD = self.encoder.encode(codepoints_BC, mask_BC, unit_ends_BU=unit_ends_BU)
        characters_BCD = gather_rows(units_BUD, down.grouping.unit_BC.expand(len(units_BUD), -1))
        begins_BC = mask_BC & ((codepoints_BC < 0x80) | (codepoints_BC >= 0xC0))  # else a later byte of a character
        words_BUD = units_BUD * down.valid_BU[..., None]
        pooled_BD = self.encoder.pool(units_BUD)
        return Encoded(characters_BCD, begins_BC, pooled_BD, words_BUD[:, 0], words_BUD, down.valid_BU)


def write_graph(graph: EncoderGraph, inputs: Sequence[Tensor], path: Path) -> None:
    """Write the graph of ONNX, with dynamic batch, length and number of words.

    Args:
        graph: what it is to compute.
        inputs: examples to trace it with, two at least, so that no size is 1.
        path: the file; weights above 2 GB are written beside it.

    Raises:
        UserError: packages are missing; the message has the remedy.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        be = "is" if len(missing) == 1 else "are"
        raise UserError(f"{' and '.join(missing)} {be} not installed; run {INSTALL}")
    lengths = {"codepoints": "length", "mask": "length", "unit_ends": "words"}
    with _quietly(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            tuple(inputs),
            dynamo=True,
            verbose=False,
            input_names=graph.input_names,
            output_names=graph.output_names,
            dynamic_shapes={name: {0: "batch", 1: lengths[name]} for name in graph.input_names},
        )
        assert program is not None
        program.save(path)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporter says of itself, such as packages for pictures that it misses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
