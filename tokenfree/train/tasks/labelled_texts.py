"""Shared code of the tasks of labelled texts and pairs: reading files, learning labels, predictions and scores."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.ngrams import text_features
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.model.neighbours.hashed_ngrams import LabelledFeatures
from tokenfree.train.tasks.base import DownstreamTask, Item, Metrics, Outputs, Predict, Split, TaskCollator
from tokenfree.train.tasks.examples.noise import Noise
from tokenfree.train.tasks.examples.texts import GLUE, TextExample, TextFormat, TextOptions, read_texts
from tokenfree.train.tasks.heads import Combine, Representation, TextHead
from tokenfree.train.tasks.inputs import TextInputs, TextSymbols
from tokenfree.train.tasks.metrics import NUMBER_METRICS, fit_ngrams, label_metrics, number_metrics

DIGITS = 6  # decimal places of the numbers in predictions
GlueName = Literal["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax"]
MetricName = Literal["accuracy", "macro_f1", "f1", "matthews", "pearson", "spearman"]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities over the last axis of `logits`, as float64."""
    weights = np.exp(np.subtract(logits, logits.max(axis=-1, keepdims=True), dtype=np.float64))
    return weights / weights.sum(axis=-1, keepdims=True)


@settings
class LabelledTexts(DownstreamTask):
    """Texts, or pairs of texts, with one label each.

    Attributes:
        labels: the classes; []: those of the training examples, in alphabetical order.
        regression: treat labels as numbers and train on their squared error.
        representation: vector of a text. `mean`: mean over its characters; `pooled`: tanh layer on CLS;
            `class_max`: CLS and the maximum over all units, followed by a layer with ReLU.
        dropout: dropout of the head.
        metrics: metrics to report; the first one decides on the best checkpoint. []: those of `glue`, else
            accuracy and macro_f1, or pearson and spearman for numbers.
        positive: class whose F1 is the metric f1.
        glue: read and score the files as this GLUE task, in the format of the Hugging Face Hub.
        format: format of the files: sst, mtl-16, parallel, csv, tsv or json; null: that of the name.
        text_column: column of the text; null: one with a usual name.
        second_column: column of the second text of a pair; null: one with a usual name.
        label_column: column of the label; null: one with a usual name.
        noise: noise in the characters of the texts.
    """

    labels: tuple[str, ...] = ()
    regression: bool = False
    representation: Representation = "mean"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    metrics: tuple[MetricName, ...] = ()
    positive: str | None = None
    glue: GlueName | None = None
    format: TextFormat | None = None
    text_column: str | None = None
    second_column: str | None = None
    label_column: str | None = None
    noise: Noise = Noise()

    @property
    def trains_pooled(self) -> bool:
        return self.representation == "pooled"

    @property
    def options(self) -> TextOptions:
        if self.glue is None:
            columns = self.text_column, self.second_column, self.label_column
            return TextOptions(self.format, *columns, self.is_number, self.labels or None)
        task = GLUE[self.glue]
        labels = self.labels or task.labels or None
        return TextOptions(None, task.text, task.second, "label", regression=self.is_number, labels=labels)

    @property
    def is_number(self) -> bool:
        return self.regression if self.glue is None else not GLUE[self.glue].labels

    @property
    def score_names(self) -> tuple[str, ...]:
        if self.metrics:
            return self.metrics
        if self.glue is not None:
            return GLUE[self.glue].metrics
        return NUMBER_METRICS if self.is_number else ("accuracy", "macro_f1")

    @property
    def _positive(self) -> str | None:
        return self.positive if self.positive is not None or self.glue is None else GLUE[self.glue].positive

    def check(self, model: ModelConfig, length: int) -> Iterable[str]:
        wrong = [name for name in self.score_names if (name in NUMBER_METRICS) != self.is_number]
        if wrong:
            kind = "numbers" if self.is_number else "classes"
            yield f"task.metrics: {', '.join(wrong)} is not a score of {kind}; leave it out"
        if "f1" in self.score_names and self._positive is None:
            yield "task.metrics: f1 is of one class; name it as task.positive, or take macro_f1"
        if self.positive is not None and self.labels and self.positive not in self.labels:
            yield f"task.positive: {self.positive!r} is none of task.labels, {', '.join(self.labels)}"
        yield from self.noise.check(model)

    def examples(self, split: Split, path: str) -> Sequence[TextExample]:
        return self.noise.add(read_texts(path, self.options), split)

    def texts(self, example: TextExample) -> Sequence[str]:
        return [example.text] if example.second is None else [example.text, example.second]

    def whole_text(self, example: TextExample) -> str:
        return "\n".join(self.texts(example))

    def learn(self, head: TextHead, examples: Sequence[TextExample], held_out: Sequence[TextExample]) -> None:
        if head.neighbours is None:
            return
        head.neighbours.learn(features.numpy() for features, _ in self._features(examples))
        if head.neighbours.strengths and not self.is_number:
            train, dev = (self._labelled(part) for part in (examples, held_out))
            if len(set(train.classes)) > 1 and head.neighbours.idf.any():
                bias_K = head.neighbours.fit(train, dev if dev.classes else None)
                head.classifier.output.bias.data.copy_(bias_K)

    def _labelled(self, examples: Sequence[TextExample]) -> LabelledFeatures:
        labelled = [example for example in examples if str(example.label) in self.labels]
        classes = [self.labels.index(str(example.label)) for example in labelled]
        return LabelledFeatures(self._features(labelled), classes)

    def _features(self, examples: Iterable[TextExample]) -> Iterable[tuple[Tensor, Tensor]]:
        for example in examples:
            features, counts = text_features([self.whole_text(example)])
            yield torch.from_numpy(features), torch.from_numpy(counts)

    def fitted(self, examples: Sequence[TextExample]) -> Self:
        bare = next((example for example in examples if example.label is None), None)
        if bare is not None:
            raise UserError(
                f"{bare.key}: the training examples have no labels. Name the column as task.label_column."
            )
        if self.is_number:
            return self
        labels = self.options.labels or sorted({str(example.label) for example in examples})
        if len(labels) < 2:
            raise UserError(
                f"{examples[0].key}: all training examples have the label {labels[0]!r}. Give more labels."
            )
        return dataclasses.replace(self, labels=tuple(labels))

    def build(self, model: ModelConfig, combine: Combine | None = None) -> TextHead:
        return TextHead(
            model,
            self.representation,
            1 if self.is_number else len(self.labels),
            dropout=self.dropout,
            combine=combine,
            regression=self.is_number,
        )

    def predictions(
        self, examples: Sequence[TextExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return `key`, `label`, `gold` if given and, for classes, `probabilities`.

        Values are means over windows.
        """
        size = 1 if self.is_number else len(self.labels)
        sums, counts = np.zeros((len(examples), size)), np.zeros((len(examples), 1))
        for item, output in zip(items, outputs, strict=True):
            sums[item.example] += output["logits"] if self.is_number else softmax(output["logits"])
            counts[item.example] += 1
        return [self._prediction(*pair) for pair in zip(examples, sums / np.maximum(counts, 1), strict=True)]

    def _prediction(self, example: TextExample, values: np.ndarray) -> dict[str, Any]:
        gold = {} if example.label is None else {"gold": example.label}
        numbers = [round(value, DIGITS) for value in values.tolist()]
        if self.is_number:
            return {"key": example.key, "label": numbers[0], **gold}
        label = self.labels[int(values.argmax())]
        by_label = dict(zip(self.labels, numbers, strict=True))
        return {"key": example.key, "label": label, **gold, "probabilities": by_label}

    def scores(
        self, examples: Sequence[TextExample], predictions: Sequence[Mapping[str, Any]]
    ) -> Metrics | None:
        gold: list[Any] = [example.label for example in examples]
        if None in gold:
            return None
        predicted: list[Any] = [prediction["label"] for prediction in predictions]
        if self.is_number:
            return number_metrics(gold, predicted, self.score_names)
        return label_metrics(gold, predicted, self.score_names, self._positive)

    def baseline_characters(self, split: Split) -> float:
        return min(1_500_000, 30_000_000 // max(1, len(self.labels) if split == "train" else 1))

    def baselines(self, examples: Sequence[TextExample]) -> Mapping[str, Predict]:
        labels: list[Any] = [example.label for example in examples]
        larger = Counter(labels).most_common(1)[0][0]
        predictors: dict[str, Predict] = {}
        if not self.is_number:
            predictors["larger class"] = lambda others: [{"label": larger}] * len(others)
        # Too few texts to compare.
        with contextlib.suppress(ValueError):
            predict = fit_ngrams(
                [self.texts(example) for example in examples], labels, regression=self.is_number
            )
            predictors["character n-grams"] = lambda others: [
                {"label": label} for label in predict([self.texts(example) for example in others])
            ]
        return predictors


@dataclasses.dataclass(frozen=True, slots=True)
class TextWindow:
    example: TextExample
    part: TextSymbols | None = None  # None: the whole example, encoded when it is read to save memory
    num_characters: int = 0  # characters with a vector in `part`, which itself keeps only the symbols


class LabelledCollator(TaskCollator):
    """A collator of labelled texts for a fitted task.

    With `two_vectors`, the second text of a pair is a separate input, whose arrays begin with `second_`.
    """

    def __init__(self, task: LabelledTexts, inputs: TextInputs, *, two_vectors: bool = False) -> None:
        self.inputs, self.two_vectors = inputs, two_vectors
        self._task = task
        self._classes = {label: number for number, label in enumerate(task.labels)}

    def texts(self, example: TextExample) -> list[tuple[str, str | None]]:
        """Return the texts of an example, each with its form before its case changed, or None."""
        texts = self._task.texts(example)
        return list(zip(texts, example.before or [None] * len(texts), strict=True))

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        windows: list[TextWindow] = [item.content for item in items]
        parts = [
            [self.inputs.encode(*text) for text in self.texts(content.example)]
            if content.part is None
            else [content.part]
            for content in windows
        ]
        if self.two_vectors:
            arrays = self.inputs.arrays([text_parts[:1] for text_parts in parts])
            second = self.inputs.arrays([text_parts[1:] for text_parts in parts])
            arrays |= {f"second_{name}": values for name, values in second.items()}
        else:
            arrays = self.inputs.arrays(parts)
        if self.inputs.reads_ngrams:
            texts = [self._task.whole_text(window.example) for window in windows]
            arrays["ngrams"], arrays["ngram_counts"] = text_features(texts)
        labels = [window.example.label for window in windows]
        num_characters = [
            window.num_characters or sum(part.num_characters for part in text_parts)
            for window, text_parts in zip(windows, parts, strict=True)
        ]
        arrays |= {
            "target_mask": np.array([[label is not None] for label in labels]),
            "num_characters": np.array(num_characters, dtype=np.int64),
        }
        if self._task.is_number:
            return arrays | {"numbers": np.array([float(label or 0) for label in labels], dtype=np.float32)}
        classes = [self._classes[str(label)] if label is not None else 0 for label in labels]
        return arrays | {"classes": np.array(classes, dtype=np.int64)}
