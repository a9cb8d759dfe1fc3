"""Simple baselines, which show what the score of a trained model is worth; each task names its own.

They take at most half a minute of one core. Larger sets are therefore sampled, always in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tokenfree.train.batches.counter_random import key, permute
from tokenfree.train.tasks.base import DownstreamTask, Split

FIELDS = ("baseline", "baseline_lines")  # of result.json
MAX_LINES = 20_000  # maximum number of examples of a split
_NGRAMS = {"analyzer": "char", "ngram_range": (1, 4), "min_df": 2, "sublinear_tf": True}
_MAX_NGRAMS, _MAX_WEIGHTS = 200_000, 20_000_000  # weights are n-grams times classes
# Chosen on the development parts of the sets in benchmarks/results. On their test parts, these are on average
# as accurate as L-BFGS with the best of three strengths, in a fifth of the time.
_EPOCHS, _STRENGTH = 10, 3.0


def score_baselines(task: DownstreamTask, examples: Mapping[Split, Sequence[Any]]) -> dict[str, Any]:
    """WeightMatch the baselines of a task to the training examples, and score them on the other splits.

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
