"""Language modelling: bits per byte of UTF-8 text, where a model predicts each byte from the bytes before it.

B batch, C positions, U units (one per position), V byte values
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.embedders.byte_table import NUM_BYTES
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Loss
from tokenfree.train.tasks.base import DownstreamTask, Item, Metrics, Outputs, Split, TaskCollator, TaskHead
from tokenfree.train.tasks.examples.files import base_name, read_lines
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.heads import Classifier, encode_units
from tokenfree.train.tasks.inputs import TextInputs, TextSymbols, cut

DIGITS = 6  # decimal places of the bits in predictions
_PIECE = 1 << 20  # characters that are encoded at once, to save memory


@settings
class Config(DownstreamTask):
    """Bits per byte of plain text files, one text each, for a model of bytes that sees only earlier bytes.

    Attributes:
        stride: distance between the starts of successive windows in evaluation, as a share of a full window.
            The overlap is the least context of a byte, except in the first window. Training windows do not
            overlap.
        dropout: dropout of the head.
    """

    name: Literal["language_modelling"] = "language_modelling"
    stride: Annotated[float, Field(gt=0, le=1)] = 0.5
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    lower_is_better = True

    def examples(self, split: Split, path: str) -> Sequence[TextExample]:
        return [self.raw(base_name(path), "".join(read_lines(path, ends=True)))]

    def raw(self, key: str, text: str) -> TextExample:
        if not text:
            raise UserError(f"{key}: there is no text to predict bytes of. Give some.")
        return TextExample(key, text)

    def check(self, model: ModelConfig, length: int) -> Iterable[str]:
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

    def build(self, model: ModelConfig) -> "NextByteHead":
        return NextByteHead(model.width, dropout=self.dropout)

    def collator(self, inputs: TextInputs, seed: int) -> "WindowCollator":
        return WindowCollator(inputs, self.stride)

    def predictions(
        self, examples: Sequence[TextExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        nats = np.zeros(len(examples))
        for item, output in zip(items, outputs, strict=True):
            nats[item.example] += float(output["nats"])
        lines = []
        for example, total in zip(examples, nats.tolist(), strict=True):
            size, bits = len(example.text.encode("utf-8", "surrogatepass")), total / math.log(2)
            shares = {"bits_per_byte": round(bits / size, DIGITS), "bits": round(bits, DIGITS)}
            lines.append({"key": example.key, **shares, "bytes": size})
        return lines

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[Mapping[str, Any]]) -> Metrics:
        bits = math.fsum(prediction["bits"] for prediction in predictions)
        return Metrics({"bits_per_byte": bits / sum(line["bytes"] for line in predictions)}, "bits_per_byte")


class ByteWindow(NamedTuple):
    """Bytes that are read at once. Bytes before `start` are predicted in an earlier window."""

    part: TextSymbols
    start: int


class WindowCollator(TaskCollator):
    """A collator of windows of texts. `stride` applies to evaluation only."""

    def __init__(self, inputs: TextInputs, stride: float) -> None:
        self._inputs, self._stride = inputs, stride

    def items(self, examples: Sequence[TextExample], *, training: bool) -> list[Item]:
        stride = 1.0 if training else self._stride
        return [
            item for number, example in enumerate(examples) for item in self._windows(number, example, stride)
        ]

    def _windows(self, number: int, example: TextExample, stride: float) -> Iterator[Item]:
        pieces = range(0, len(example.text), _PIECE)
        symbols = [self._inputs.encode(example.text[begin : begin + _PIECE]).symbols for begin in pieces]
        start = 0
        for part in cut(
            self._inputs, TextSymbols(np.concatenate(symbols), np.zeros(0, dtype=np.int64)), stride
        ):
            yield Item(number, self._inputs.size([part]), ByteWindow(part, start))
            start = part.num_vectors - max(1, int(part.num_vectors * stride))

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        windows: list[ByteWindow] = [item.content for item in items]
        arrays = self._inputs.arrays([[window.part] for window in windows])
        starts, ends = (
            np.array(numbers)[:, None]
            for numbers in (
                [byte_window.start for byte_window in windows],
                [len(byte_window.part.symbols) for byte_window in windows],
            )
        )
        # Byte n of a window is at position n + 1, after CLS.
        positions = np.arange(arrays["codepoints"].shape[1])
        target_mask = (starts <= positions) & (positions < ends)
        return arrays | {"target_mask": target_mask, "num_characters": target_mask.sum(axis=1)}


class NextByteHead(TaskHead):
    def __init__(self, width: int, *, dropout: float) -> None:
        super().__init__()
        self.classifier = Classifier(width, None, NUM_BYTES, dropout)

    def outputs(self, encoder: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return `nats` [B], summed over the targets, and the number of `correct` predictions [B]."""
        units_BUD, _ = encode_units(encoder, batch)
        logits_BCV, next_BC = self.classifier(units_BUD[:, :-1]), batch["codepoints"][:, 1:]
        is_target_BC = batch["target_mask"][:, :-1]
        nats_BC = nn.functional.cross_entropy(logits_BCV.transpose(1, 2), next_BC, reduction="none")
        correct_BC = (logits_BCV.argmax(dim=-1) == next_BC) & is_target_BC
        return {"nats": (nats_BC * is_target_BC).sum(dim=1), "correct": correct_BC.sum(dim=1)}

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        return Loss(outputs["nats"].sum(), batch["target_mask"].sum(), outputs["correct"].sum())
