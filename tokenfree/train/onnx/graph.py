"""An encoder with named tensors as inputs and outputs, and its graph in ONNX for any batch and any length.

The parts of the model know of exporting where their steps depend on a length (`torch.compiler.is_exporting`).

B batch, C characters (or bytes, or subwords), U units, D width
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.inference.text_encoder import Encoded
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.model.upsamplers.identity import gather_rows

NEEDED = ("onnx", "onnxscript")
INSTALL = "pip install 'tokenfree[onnx]'"


Shape = list[str | int]


class Graph(nn.Module):
    """An encoder, and what is computed of its outputs, under names.

    Args:
        encoder: whose inputs it takes: `codepoints`, `mask` and, for encoders of words of bytes, `unit_ends`.
        output_shapes: by the names of the outputs, in their order; sizes are numbers, or names of what is free.
        has_segments: whether `segments` are an input too; else they are 0 throughout.
    """

    def __init__(self, encoder: Encoder, output_shapes: Mapping[str, Shape], *, has_segments: bool = False) -> None:
        super().__init__()
        self.encoder, self.output_shapes = encoder, output_shapes
        self.reads_words = reads_words(encoder)
        self.input_names = ("codepoints", "mask", *["segments"] * has_segments, *["unit_ends"] * self.reads_words)
        self.output_names = tuple(output_shapes)
        self.eval()


class EncoderGraph(Graph):
    """What an encoder alone gives: Y and the vectors of whole texts, by their names in `Encoded`.

    Of encoders of words of bytes the vectors of `words` come out, of others those of `characters`; `pooled` only where
    it is trained.
    """

    def __init__(self, encoder: Encoder, *, pooled_is_trained: bool) -> None:
        width = encoder.width
        vectors: dict[str, Shape] = {"characters": ["batch", "length", width]}
        if reads_words(encoder):
            vectors = {"words": ["batch", "words", width], "word_mask": ["batch", "words"]}
        of_texts: dict[str, Shape] = {name: ["batch", width] for name in ("cls", "mean", "cls_max", "pooled")}
        of_texts["cls_max"] = ["batch", 2 * width]
        if not pooled_is_trained:
            del of_texts["pooled"]
        super().__init__(encoder, vectors | of_texts)

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


def reads_words(encoder: Encoder) -> bool:
    """Whether the text says which units there are: words of bytes."""
    return encoder.config.downsampler.bytes_per_word is not None


def write_graph(graph: Graph, inputs: Mapping[str, Tensor], path: Path) -> None:
    """Write the graph of ONNX, with dynamic batch, length and number of words.

    Args:
        graph: what it is to compute.
        inputs: by their names, examples to trace it with, two at least, so that no size is 1.
        path: the file; weights above 2 GB are written beside it.

    Raises:
        UserError: packages are missing; the message has the remedy.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        be = "is" if len(missing) == 1 else "are"
        raise UserError(f"{' and '.join(missing)} {be} not installed; run {INSTALL}")
    with _quietly(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            kwargs=dict(inputs),
            dynamo=True,
            verbose=False,
            input_names=graph.input_names,
            output_names=graph.output_names,
            dynamic_shapes={
                name: {0: "batch", 1: "words" if name == "unit_ends" else "length"} for name in graph.input_names
            },
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
