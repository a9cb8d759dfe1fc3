"""Scores of labels, numbers and tags."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import sklearn.metrics
from scipy import stats

from tokenfree.train.tasks.examples.tagged import is_bio, spans
from tokenfree.train.tasks.metrics import Metrics

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


Tags = Sequence[Sequence[str]]  # of each word of each sentence


def tag_metrics(gold: Tags, predicted: Tags) -> Metrics:
    """The share of words whose tag is right.

    Raises:
        ValueError: there is no word, or not one tag a word.
    """
    return Metrics({"accuracy": _accuracy(gold, predicted)}, "accuracy")


def span_metrics(gold: Tags, predicted: Tags) -> Metrics:
    """F1, precision and recall of spans over all sentences, F1 by type (`f1/PER`), and the accuracy of tags.

    A span is right if its words and its type are. An I- that goes on with no span of its type begins one. A score is 0
    where it is not defined, as in conlleval.

    Args:
        gold: tags in BIO.
        predicted: likewise; any order of them will do.

    Raises:
        ValueError: there is no word, not one tag a word, or a tag is not BIO.
    """
    accuracy = _accuracy(gold, predicted)
    wrong = [tag for tag in set[str]().union(*gold, *predicted) if not is_bio(tag)]
    if wrong:
        raise ValueError(f"tags that are not BIO: {', '.join(sorted(wrong))}")
    correct, said, there = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(map(spans, gold), map(spans, predicted), strict=True):
        correct.update(label for *_, label in set(ours).intersection(theirs))
        said.update(label for *_, label in theirs)
        there.update(label for *_, label in ours)
    total, num_said, num_there = correct.total(), said.total(), there.total()
    values = {
        "f1": _f1(total, num_said, num_there),
        "precision": total / max(num_said, 1),
        "recall": total / max(num_there, 1),
        "accuracy": accuracy,
    }
    by_type = {f"f1/{name}": _f1(correct[name], said[name], there[name]) for name in sorted(said | there)}
    return Metrics(values | by_type, "f1")


def _f1(correct: int, said: int, there: int) -> float:
    return 2 * correct / max(said + there, 1)


def _accuracy(gold: Tags, predicted: Tags) -> float:
    lengths = [len(tags) for tags in gold]
    if not sum(lengths) or lengths != [len(tags) for tags in predicted]:
        raise ValueError(f"tags of {sum(lengths)} words, and predictions of {sum(map(len, predicted))}: not one a word")
    right = sum(
        one == other
        for ours, theirs in zip(gold, predicted, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    )
    return right / sum(lengths)
