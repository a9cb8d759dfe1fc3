"""Mirrored summation: predict the sum of a_i * a_{n-i+1} over i from 1 to K for vectors a_1 to a_n from U(0, 1).

The synthetic task of Guo et al., https://arxiv.org/abs/1912.00544. Distant vectors must interact before
pooling.

b, B batch, n vectors per sequence, S numbers per vector, C positions, D width
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.preprocess.text.specials import CLS
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.counter_random import uniform
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Loss
from tokenfree.train.tasks.base import DownstreamTask, Item, Metrics, Outputs, Split, TaskCollator, TaskHead
from tokenfree.train.tasks.heads import Classifier, class_and_maximum
from tokenfree.train.tasks.inputs import TextInputs

DIGITS = 8  # decimal places of the errors in predictions
# Variance of a product of two draws from U(0, 1); a sum of functions of each explains 6 / 144.
_VARIANCE = 7 / 144
_VARIANCE_OF_SQUARE = 4 / 45  # variance of the square of one draw


class MirroredExample(NamedTuple):
    """The split and number of a sequence. They decide its vectors, which are computed when they are read."""

    split: Split
    number: int


@settings
class Config(DownstreamTask):
    """Sums of products of vectors from both ends of a sequence, from the class node and the maximum over all units.

    If no two vectors interact, a model can only add functions of single vectors. Its error is then at least a
    seventh of that of a constant.

    Attributes:
        length: number of vectors per sequence, n.
        size: numbers per vector.
        pairs: number of products in a sum, K, from the outermost pair inwards; at most `length`.
        train_examples: number of training sequences.
        dev_examples: number of sequences that decide on the best checkpoint.
        test_examples: number of test sequences.
        seed: seed of the sequences; `train.seed` decides weights and data order.
    """

    name: Literal["mirrored_summation"] = "mirrored_summation"
    length: Annotated[int, Field(ge=2)] = 100
    size: Annotated[int, Field(ge=1)] = 50
    pairs: Annotated[int, Field(ge=1)] = 10
    train_examples: Annotated[int, Field(ge=1)] = 200_000
    dev_examples: Annotated[int, Field(ge=1)] = 2_000
    test_examples: Annotated[int, Field(ge=1)] = 200_000
    seed: Annotated[int, Field(ge=0)] = 0

    needs_files = False
    lower_is_better = True

    @property
    def mean(self) -> float:
        """Mean of each number of a target: the best prediction that does not depend on the sequence."""
        return self.pairs / 4 + (self._has_square / 12)

    @property
    def variance(self) -> float:
        # Pairs that are in the sum from both ends.
        twice = max(0, self.pairs - (self.length + 1) // 2)
        once = self.pairs - self._has_square - 2 * twice
        return (once + 4 * twice) * _VARIANCE + self._has_square * _VARIANCE_OF_SQUARE

    @property
    def _has_square(self) -> int:
        return int(self.length % 2 == 1 and 2 * self.pairs > self.length)

    def examples(self, split: Split, path: str | None) -> Sequence[MirroredExample]:
        if path is not None:
            raise UserError(f"{path}: task.name: {self.name} makes its examples itself. Leave out the file.")
        sizes = {"train": self.train_examples, "dev": self.dev_examples, "test": self.test_examples}
        return [MirroredExample(split, number) for number in range(sizes[split])]

    def raw(self, key: str, text: str) -> NoReturn:
        raise UserError(f"{key}: task.name: {self.name} reads vectors, not texts. Evaluate the run instead.")

    def check(self, model: ModelConfig, length: int) -> Iterable[str]:
        if self.pairs > self.length:
            yield f"task.pairs: {self.pairs} is more than task.length, {self.length}; make it at most that"
        if length <= self.length:
            yield (
                f"train.length: {length} positions are too few for {self.length} vectors and CLS; "
                f"set it to {self.length + 1}, or task.length to less"
            )
        if model.embedder.symbols != "vectors":
            yield (
                f"model.embedder.name: {model.embedder.name} reads {model.embedder.symbols}, but task.name: "
                f"{self.name} gives it vectors; set model.embedder.name to vectors, without --init-from"
            )
        elif model.embedder.size != self.size:
            yield f"model.embedder.size: {model.embedder.size} is not task.size, {self.size}; make them equal"
        if model.downsampler.num_units(self.length) != self.length:
            yield (
                f"model.downsampler.name: {model.downsampler.name} makes units of several vectors, and task.name: "
                f"{self.name} has its own; set it to identity"
            )

    def build(self, model: ModelConfig) -> "SumHead":
        return SumHead(model.width, self.size, self.mean)

    def collator(self, inputs: TextInputs, seed: int) -> "SequenceCollator":
        return SequenceCollator(self)

    def sequences(self, examples: Sequence[MirroredExample]) -> np.ndarray:
        """Return draws from U(0, 1), float32 [b, n, S]. They depend only on seed, split, n, S and number."""
        (split,) = {example.split for example in examples}
        purpose = f"mirrored summation, {split}, {self.length} of {self.size}"
        numbers = np.array([example.number for example in examples], dtype=np.int64)
        drawn = uniform(self.seed, purpose, numbers, self.length * self.size)
        return drawn.reshape(-1, self.length, self.size).astype(np.float32)

    def targets(self, sequences: np.ndarray) -> np.ndarray:
        first, last = sequences[:, : self.pairs], sequences[:, ::-1][:, : self.pairs]
        return (first * last).sum(axis=1, dtype=np.float64).astype(np.float32)

    def predictions(
        self, examples: Sequence[MirroredExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        return [
            {
                "key": f"{example.split} {example.number}",
                "squared_error": round(float(output["squared_error"]), DIGITS),
            }
            for example, output in zip(examples, outputs, strict=True)
        ]

    def scores(
        self, examples: Sequence[MirroredExample], predictions: Sequence[Mapping[str, Any]]
    ) -> Metrics:
        """Return `mse`, the mean squared error, and `relative_mse`, its ratio to the error of the best constant."""
        error = float(np.mean([prediction["squared_error"] for prediction in predictions]))
        return Metrics({"mse": error, "relative_mse": error / self.variance}, "mse")


class SequenceCollator(TaskCollator):
    def __init__(self, task: Config) -> None:
        self._task = task

    def items(self, examples: Sequence[MirroredExample], *, training: bool) -> list[Item]:
        return [Item(number, 1 + self._task.length, example) for number, example in enumerate(examples)]

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        task, count = self._task, len(items)
        sequences = task.sequences([item.content for item in items])
        codepoints = np.zeros((count, 1 + task.length), dtype=np.int64)
        codepoints[:, 0] = CLS
        return {
            "codepoints": codepoints,  # only their shape matters
            "mask": np.ones_like(codepoints, dtype=bool),
            "vectors": np.pad(sequences, ((0, 0), (1, 0), (0, 0))),
            "sums": task.targets(sequences),
            "target_mask": np.ones((count, 1), dtype=bool),
            "num_characters": np.full(count, task.length, dtype=np.int64),
        }


class SumHead(TaskHead):
    """A two-layer MLP on the class node and the maximum over all units.

    `mean` is the initial bias of the output.
    """

    def __init__(self, width: int, size: int, mean: float) -> None:
        super().__init__()
        self.classifier = Classifier(2 * width, width, size, dropout=0.0)
        nn.init.constant_(self.classifier.output.bias, mean)

    def outputs(self, encoder: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        down, units_BUD = encoder.encode(batch["vectors"], batch["mask"])
        predicted_BS = self.classifier(class_and_maximum(units_BUD, down.valid_BU))
        return {"squared_error": (predicted_BS - batch["sums"]).square().mean(dim=-1)}

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        count = batch["target_mask"].sum()
        return Loss(outputs["squared_error"].sum(), count, count.new_zeros(()))
