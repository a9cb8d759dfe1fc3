"""Scores of labels, numbers and tags."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tokenfree.train.tasks.base import Metrics
from tokenfree.train.tasks.examples.tagged import spans

NUMBER_METRICS = ("pearson", "spearman")
Tags = Sequence[Sequence[str]]  # one tag per word of each sentence


def label_metrics(
    gold: Sequence[str], predicted: Sequence[str], names: Sequence[str], positive: str | None = None
) -> Metrics:
    """Return the named scores, the main one first. `macro_f1` is over classes that occur; `positive` is that of f1."""
    # The extra `model` lacks it, and predicts without scores.
    import sklearn.metrics

    # Its type stubs do not allow zero_division=0.
    f1_score: Any = sklearn.metrics.f1_score
    ours, theirs = [one == positive for one in gold], [one == positive for one in predicted]
    functions = {
        "accuracy": lambda: sklearn.metrics.accuracy_score(gold, predicted),
        "matthews": lambda: sklearn.metrics.matthews_corrcoef(gold, predicted),
        "macro_f1": lambda: f1_score(gold, predicted, average="macro", zero_division=0),
        "f1": lambda: f1_score(ours, theirs, zero_division=0),
    }
    return Metrics({name: float(functions[name]()) for name in names}, names[0])


def number_metrics(
    gold: Sequence[float], predicted: Sequence[float], names: Sequence[str] = NUMBER_METRICS
) -> Metrics:
    """Return the named correlations. A correlation with a constant is 0."""
    return Metrics({name: _correlation(name, gold, predicted) for name in names}, names[0])


def _correlation(name: str, gold: Sequence[float], predicted: Sequence[float]) -> float:
    from scipy import stats

    if len(gold) < 2:
        return 0.0
    function: Any = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[name]
    with warnings.catch_warnings(action="ignore", category=stats.DegenerateDataWarning):
        value = float(function(gold, predicted).statistic)
    return 0.0 if math.isnan(value) else value


def tag_metrics(gold: Tags, predicted: Tags) -> Metrics:
    right = sum(
        one == other
        for ours, theirs in zip(gold, predicted, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    )
    return Metrics({"accuracy": right / sum(map(len, gold))}, "accuracy")


def span_metrics(gold: Tags, predicted: Tags) -> Metrics:
    """Return F1, precision and recall of BIO spans over all sentences, F1 by type (`f1/PER`), and the accuracy of tags.

    An I- without a span of its type begins one. An undefined score is 0, as in conlleval.
    """
    correct, predicted_counts, expected = Counter[str](), Counter[str](), Counter[str]()
    for gold_spans, predicted_spans in zip(map(spans, gold), map(spans, predicted), strict=True):
        correct.update(label for *_, label in set(gold_spans).intersection(predicted_spans))
        predicted_counts.update(label for *_, label in predicted_spans)
        expected.update(label for *_, label in gold_spans)
    total, num_predicted, num_expected = correct.total(), predicted_counts.total(), expected.total()
    values = {
        "f1": _f1(total, num_predicted, num_expected),
        "precision": total / max(num_predicted, 1),
        "recall": total / max(num_expected, 1),
        **tag_metrics(gold, predicted).values,
    }
    by_type = {
        f"f1/{name}": _f1(correct[name], predicted_counts[name], expected[name])
        for name in sorted(predicted_counts | expected)
    }
    return Metrics(values | by_type, "f1")


def _f1(correct: int, predicted: int, expected: int) -> float:
    return 2 * correct / max(predicted + expected, 1)
