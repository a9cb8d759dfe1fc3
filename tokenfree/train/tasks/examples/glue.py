"""The tasks of GLUE (Wang et al. 2019, https://arxiv.org/abs/1804.07461) as the hub's `nyu-mll/glue` holds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from tokenfree.train.tasks.examples.columns import Columns
from tokenfree.train.tasks.examples.huggingface import SCHEME
from tokenfree.train.tasks.examples.texts import TextOptions

HUB = "nyu-mll/glue"


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """Where a task's texts and labels stand, and how it is scored."""

    name: str  # the config of the dataset
    text: str
    second: str | None
    labels: tuple[str, ...]  # in the hub's order; none: a number
    metrics: tuple[str, ...]  # the first is the main one; names of train/tasks/metrics/scores.py
    positive: str | None = None  # the class of the binary F1
    dev: tuple[str, ...] = ("validation",)
    test: tuple[str, ...] = ("test",)

    @property
    def options(self) -> TextOptions:
        """How its rows are read."""
        columns = Columns(self.text, self.second, "label")
        return TextOptions(columns=columns, regression=not self.labels, labels=self.labels or None)

    def address(self, split: str, dataset: str = HUB) -> str:
        """A split for `read_texts`; `dataset` may be a folder in the hub's format."""
        return f"{SCHEME}{dataset}:{self.name}@{split}"


_NLI = ("entailment", "neutral", "contradiction")
_SENTENCES, _PREMISE = ("sentence1", "sentence2"), ("premise", "hypothesis")
_TASKS = (
    GlueTask("cola", "sentence", None, ("unacceptable", "acceptable"), ("matthews",)),
    GlueTask("sst2", "sentence", None, ("negative", "positive"), ("accuracy",)),
    GlueTask("mrpc", *_SENTENCES, ("not_equivalent", "equivalent"), ("f1", "accuracy"), "equivalent"),
    GlueTask("qqp", "question1", "question2", ("not_duplicate", "duplicate"), ("f1", "accuracy"), "duplicate"),
    GlueTask("stsb", *_SENTENCES, (), ("pearson", "spearman")),
    GlueTask(
        "mnli",
        *_PREMISE,
        _NLI,
        ("accuracy",),
        dev=("validation_matched", "validation_mismatched"),
        test=("test_matched", "test_mismatched"),
    ),
    GlueTask("qnli", "question", "sentence", ("entailment", "not_entailment"), ("accuracy",)),
    GlueTask("rte", *_SENTENCES, ("entailment", "not_entailment"), ("accuracy",)),
    GlueTask("wnli", *_SENTENCES, ("not_entailment", "entailment"), ("accuracy",)),
    GlueTask("ax", *_PREMISE, _NLI, ("matthews",), dev=()),  # the diagnostic set: answered by a model of mnli
)
GLUE: Mapping[str, GlueTask] = MappingProxyType({task.name: task for task in _TASKS})
