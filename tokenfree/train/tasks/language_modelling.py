"""Language modelling: how many bits a model needs for each byte of a text, when it reads one byte after the other.

Every byte of UTF-8 is predicted from those before it, so that the sum is exact for any text of any language. Texts are
files, or given; each is read in windows, of which all but the first begin within the one before.

B batch, C positions, U units (one a position), V byte values
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.embedders.byte_table import NUM_BYTES
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Loss
from tokenfree.train.tasks.base import DownstreamTask, Item, Outputs, Split, TaskHead
from tokenfree.train.tasks.examples.files import base_name, decode, read_bytes
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.heads import Classifier, encode_units
from tokenfree.train.tasks.inputs import TextInputs, TextSymbols
from tokenfree.train.tasks.metrics import Metrics, bits_per_byte

DIGITS = 6  # of the bits in predictions
_MANY = 1 << 30  # positions: more than any model reads


@settings
class Config(DownstreamTask):
    """Bits per byte of plain text files, each one text, by a model of bytes that sees only what comes before.

    Attributes:
        stride: in evaluation, from one window to the next, as a share of a full window: the rest is what a byte at the
            start of a window has before it. Training takes windows that do not overlap.
        dropout: of the head, at least 0 and below 1.
        encoding: of the files; null: UTF-8.
    """

    name: Literal["language_modelling"] = "language_modelling"
    stride: Annotated[float, Field(gt=0, le=1)] = 0.5
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    encoding: str | None = None

    lower_is_better = True

    def examples(self, split: Split, path: str | None) -> Sequence[TextExample]:
        """The text of a file.

        Raises:
            UserError: it cannot be read, or there is nothing in it.
        """
        assert path is not None, "the task needs files"
        return [self.raw(base_name(path), decode(path, read_bytes(path), self.encoding))]

    def raw(self, key: str, text: str) -> TextExample:
        """Any text with a byte in it.

        Raises:
            UserError: it has none.
        """
        if not text:
            raise UserError(f"{key}: there is no text, of which each byte could be predicted; give some")
        return TextExample(key, text)

    def check(self, model: ModelConfig, length: int) -> list[str]:
        """A model of other symbols than bytes, or one that sees what it is to predict."""
        return list(self._problems(model))

    def _problems(self, model: ModelConfig) -> Iterator[str]:
        if model.embedder.symbols != "bytes":
            yield (
                f"model.embedder.name: {model.embedder.name} reads {model.embedder.symbols}, and task.name: "
                f"{self.name} predicts bytes, of which all texts are made; set it to byte_table"
            )
        if model.downsampler.name != "identity":
            yield (
                f"model.downsampler.name: {model.downsampler.name} lets a unit see bytes that come after others which "
                f"task.name: {self.name} predicts from it; set it to identity"
            )
        if model.trunk.attention.name != "causal":
            yield (
                f"model.trunk.attention.name: {model.trunk.attention.name} lets units see the bytes that task.name: "
                f"{self.name} predicts; set it to causal"
            )

    def build(self, model: ModelConfig) -> NextByteHead:
        """The head."""
        return NextByteHead(model.width, dropout=self.dropout)

    def collator(self, inputs: TextInputs, seed: int) -> WindowCollator:
        """The collator; nothing of it is random."""
        return WindowCollator(inputs, self.stride)

    def predictions(
        self, examples: Sequence[TextExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """`bits` and `bytes` of each text, and the one over the other."""
        nats = np.zeros(len(examples))
        for item, output in zip(items, outputs, strict=True):
            nats[item.example] += float(output["nats"])
        lines = []
        for example, total in zip(examples, nats.tolist(), strict=True):
            size = _num_bytes(example.text)
            share = bits_per_byte(total, size).score
            bits = round(total / math.log(2), DIGITS)
            lines.append({"key": example.key, "bits_per_byte": round(share, DIGITS), "bits": bits, "bytes": size})
        return lines

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[Mapping[str, Any]]) -> Metrics:
        """`bits_per_byte` of all texts together."""
        nats = math.log(2) * math.fsum(prediction["bits"] for prediction in predictions)
        return bits_per_byte(nats, sum(prediction["bytes"] for prediction in predictions))


class ByteWindow(NamedTuple):
    """Bytes that are read at once, of which those before `start` are predicted in another window."""

    part: TextSymbols
    start: int


class WindowCollator:
    """Windows of texts to arrays; see `TaskCollator`.

    Args:
        inputs: of bytes.
        stride: of evaluation, see `Config`.
    """

    def __init__(self, inputs: TextInputs, stride: float) -> None:
        self._inputs, self._stride = inputs, stride
        self._room = _MANY - inputs.missing([TextSymbols(np.broadcast_to(np.int64(0), _MANY), np.zeros(0, np.int64))])

    def items(self, examples: Sequence[TextExample], *, training: bool) -> list[Item]:
        """The windows of each text, from left to right: every byte is predicted in one of them."""
        step = self._room if training else max(1, int(self._room * self._stride))
        return [item for number, example in enumerate(examples) for item in self._windows(number, example, step)]

    def _windows(self, number: int, example: TextExample, step: int) -> Iterator[Item]:
        symbols, done = np.concatenate([each.symbols for each in self._inputs.chunks(example.text)]), 0
        for begin in range(0, len(symbols), step):
            part = TextSymbols(symbols[begin : begin + self._room], np.zeros(0, dtype=np.int64))
            yield Item(number, self._inputs.size([part]), ByteWindow(part, done - begin))
            done = begin + len(part.symbols)
            if done == len(symbols):
                return

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        """`codepoints` and `mask`; `target_mask` [b, C] tells at which positions the next byte is predicted."""
        windows: list[ByteWindow] = [item.content for item in items]
        arrays = self._inputs.arrays([[window.part] for window in windows])
        starts, ends = (
            np.array(numbers)[:, None]
            for numbers in ([each.start for each in windows], [len(each.part.symbols) for each in windows])
        )
        positions = np.arange(arrays["codepoints"].shape[1])  # the byte n of a window stands at n + 1
        target_mask = (starts <= positions) & (positions < ends)
        return arrays | {"target_mask": target_mask, "num_characters": target_mask.sum(axis=1)}


class NextByteHead(TaskHead):
    """The next byte, of each unit.

    Args:
        width: of the encoder.
        dropout: of the head.
    """

    def __init__(self, width: int, *, dropout: float) -> None:
        super().__init__()
        self.classifier = Classifier(width, None, NUM_BYTES, dropout)

    def outputs(self, encoder: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`nats` [B], summed over the targets, and how many of these are `correct` [B]."""
        units_BUD, _ = encode_units(encoder, batch)
        logits_BCV, next_BC = self.classifier(units_BUD[:, :-1]), batch["codepoints"][:, 1:]
        wanted_BC = batch["target_mask"][:, :-1]
        nats_BC = functional.cross_entropy(logits_BCV.transpose(1, 2), next_BC, reduction="none")
        correct_BC = (logits_BCV.argmax(dim=-1) == next_BC) & wanted_BC
        return {"nats": (nats_BC * wanted_BC).sum(dim=1), "correct": correct_BC.sum(dim=1)}

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """Cross-entropy, nats."""
        return Loss(outputs["nats"].sum(), batch["target_mask"].sum(), outputs["correct"].sum())


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
