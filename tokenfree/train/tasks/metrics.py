"""Metrics of predictions, and simple baselines, which show what the score of a trained model is worth.

Each task names its own. Baselines take at most half a minute of one core. Larger sets are therefore sampled,
always in the same way.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tokenfree.train.batches.counter_random import key, permute
from tokenfree.train.tasks.base import DownstreamTask, Metrics, Split
from tokenfree.train.tasks.examples.tagged import spans

NUMBER_METRICS = ("pearson", "spearman")
Tags = Sequence[Sequence[str]]  # one tag per word of each sentence


def label_metrics(
    gold: Sequence[str], predicted: Sequence[str], names: Sequence[str], positive: str | None = None
) -> Metrics:
    """Return the named scores, the main one first.

    `macro_f1` is over classes that occur; `positive` is that of f1.
    """
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


FIELDS = ("baseline", "baseline_lines")  # of result.json
MAX_LINES = 20_000  # maximum number of examples of a split
_NGRAMS = {"analyzer": "char", "ngram_range": (1, 4), "min_df": 2, "sublinear_tf": True}
_MAX_NGRAMS, _MAX_WEIGHTS = 200_000, 20_000_000  # weights are n-grams times classes
# Chosen on the development parts of the sets in benchmarks/results. On their test parts, these are on average
# as accurate as L-BFGS with the best of three strengths, in a fifth of the time.
_EPOCHS, _STRENGTH = 10, 3.0


def score_baselines(task: DownstreamTask, examples: Mapping[Split, Sequence[Any]]) -> dict[str, Any]:
    """Fit the baselines of a task to the training examples, and score them on the other splits.

    Return `baseline`, the scores by split and name, and `baseline_lines`, the numbers of used and of all
    examples of the splits that are sampled.
    """
    used = {
        split: sample(of_split, task.texts, task.baseline_characters(split))
        for split, of_split in examples.items()
    }
    lines = {split: [len(used[split]), len(whole)] for split, whole in examples.items()}
    predictors = task.baselines(used.pop("train"))
    scores = {
        split: {name: task.scores(part, predict(part)) for name, predict in predictors.items()}
        for split, part in used.items()
    }
    return {
        "baseline": {
            split: {name: dict(metrics.values) for name, metrics in of_split.items() if metrics is not None}
            for split, of_split in scores.items()
        },
        "baseline_lines": {split: counts for split, counts in lines.items() if counts[0] < counts[1]},
    }


def sample(
    examples: Sequence[Any], texts: Callable[[Any], Sequence[str]], character_capacity: float
) -> Sequence[Any]:
    """Return at most `MAX_LINES` examples and `character_capacity` of their texts.

    The draw is always the same.
    """
    size = len(examples)
    drawn = permute(np.arange(size), np.full(size, size), np.full(size, key(0, "baselines")))[
        :MAX_LINES
    ].tolist()
    ends = np.cumsum([sum(map(len, texts(examples[number]))) for number in drawn])
    count = max(1, int(np.searchsorted(ends, character_capacity, side="right")))
    return [examples[number] for number in sorted(drawn[:count])]


def fit_ngrams(
    texts: Sequence[Sequence[str]], labels: Sequence[Any], *, regression: bool
) -> Callable[[Sequence[Sequence[str]]], list[Any]]:
    """Return a predictor of the labels of texts, or of pairs: logistic or ridge regression over character n-grams.

    Raises ValueError if no n-gram is in two texts, or there is one class only.
    """
    from sklearn.compose import make_column_transformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge, SGDClassifier
    from sklearn.pipeline import make_pipeline

    num_ngrams, model = _MAX_NGRAMS, Ridge()
    if not regression:
        sgd: Any = {"loss": "log_loss", "max_iter": _EPOCHS, "tol": None, "random_state": 0}
        num_ngrams = min(_MAX_NGRAMS, _MAX_WEIGHTS // len({*labels}))
        model = SGDClassifier(alpha=1 / (_STRENGTH * len(labels)), **sgd)
    columns = [
        (TfidfVectorizer(**_NGRAMS, max_features=num_ngrams), column) for column in range(len(texts[0]))
    ]
    pipeline = make_pipeline(make_column_transformer(*columns, sparse_threshold=1.0), model)
    pipeline.fit(np.array(texts, dtype=object), labels)
    return lambda others: pipeline.predict(np.array(others, dtype=object)).tolist()
