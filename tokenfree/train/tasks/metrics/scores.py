"""Scores of labels and numbers, as scikit-learn and scipy define them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import sklearn.metrics
from scipy import stats

from tokenfree.train.tasks.metrics.metrics import Metrics

LABEL_METRICS = ("accuracy", "macro_f1", "f1", "matthews")
NUMBER_METRICS = ("pearson", "spearman")
_f1_score: Any = sklearn.metrics.f1_score  # its zero_division takes 0, which its types do not know


def label_metrics(
    gold: Sequence[str], predicted: Sequence[str], names: Sequence[str], positive: str | None = None
) -> Metrics:
    """The named scores of classes; the first name is the main one.

    Args:
        gold: the class of each example.
        predicted: what the model says.
        names: of `LABEL_METRICS`. `macro_f1` is the mean over the classes that occur in either.
        positive: the class whose F1 is `f1`, which is 0 where there is neither.

    Raises:
        ValueError: there is no example, not one prediction an example, no such score, or `f1` without its class.
    """
    _check(gold, predicted, names, LABEL_METRICS)
    values = {}
    for name in names:
        if name == "accuracy":
            values[name] = sklearn.metrics.accuracy_score(gold, predicted)
        elif name == "matthews":
            values[name] = sklearn.metrics.matthews_corrcoef(gold, predicted)
        elif name == "macro_f1":
            values[name] = _f1_score(gold, predicted, average="macro", zero_division=0)
        elif positive is None:
            raise ValueError("f1 is of one class; name it, or take macro_f1")
        else:
            ours, theirs = [one == positive for one in gold], [one == positive for one in predicted]
            values[name] = _f1_score(ours, theirs, zero_division=0)
    return Metrics({name: float(value) for name, value in values.items()}, names[0])


def number_metrics(gold: Sequence[float], predicted: Sequence[float], names: Sequence[str] = NUMBER_METRICS) -> Metrics:
    """The correlations of numbers; the first name is the main one. 0 where one is not defined: all of a side are alike.

    Raises:
        ValueError: there is no example, not one prediction an example, or no such score.
    """
    _check(gold, predicted, names, NUMBER_METRICS)
    functions = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}
    return Metrics({name: _correlation(functions[name], gold, predicted) for name in names}, names[0])


def _correlation(function: Any, gold: Sequence[float], predicted: Sequence[float]) -> float:
    if len(gold) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        value = float(function(gold, predicted).statistic)
    return 0.0 if math.isnan(value) else value


def _check(gold: Sequence[Any], predicted: Sequence[Any], names: Sequence[str], known: Sequence[str]) -> None:
    if not gold or len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} examples and {len(predicted)} predictions; each example needs one")
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"no score {', '.join(unknown) or 'is named'}; there are {', '.join(known)}")
