"""What is to be beaten, learned from the same training part and scored on the same parts as the models.

Of texts and pairs: the larger class, and logistic regressions over words and over character n-grams. Of names: the tag
that each word has most often. Of mirrored summation: the best constant, and the best sum of functions of single
vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks.tasks.data import SOURCES, Part, path
from tokenfree.train.tasks.examples.example import TaggedExample, TextExample
from tokenfree.train.tasks.examples.tagged import read_tagged
from tokenfree.train.tasks.examples.texts import read_texts
from tokenfree.train.tasks.metrics.tags import span_metrics

Scores = dict[str, dict[str, float]]  # by part and baseline
EVALUATED: tuple[Part, ...] = ("dev", "test")
OUTSIDE = "O"
LARGER_CLASS, WORDS, NGRAMS = "larger class", "words", "character n-grams"
FREQUENT_TAG = "most frequent tag of each word"
CONSTANT, NO_PAIRS = "best constant", "best without pairs"
# Of tf-idf; text is cut at white space, n-grams have one to four characters.
VECTORIZERS: dict[str, dict[str, Any]] = {
    WORDS: {"sublinear_tf": True, "token_pattern": r"\S+"},
    NGRAMS: {"sublinear_tf": True, "analyzer": "char", "ngram_range": (1, 4), "min_df": 2},
}
ITERATIONS = 1000


def baselines(folder: Path, name: str) -> Scores:
    """The main score of each baseline on dev and test of a set of examples in `folder`: accuracy, or F1 of spans.

    Raises:
        UserError: the set is not there.
    """
    if name not in SOURCES:  # mirrored summation, whose score is an error relative to the first
        return {part: {CONSTANT: 1.0, NO_PAIRS: 1 / 7} for part in EVALUATED}
    parts = {part: path(folder, name, part) for part in ("train", *EVALUATED)}
    if SOURCES[name].kind == "names":
        return _of_names({part: read_tagged(each) for part, each in parts.items()})
    return _of_texts({part: read_texts(each) for part, each in parts.items()})


def _of_names(parts: dict[str, Sequence[TaggedExample]]) -> Scores:
    seen: dict[str, Counter[str]] = {}
    for example in parts["train"]:
        for word, tag in zip(example.words, _tags(example), strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    usual = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    scores: Scores = {}
    for part in EVALUATED:
        gold = [_tags(example) for example in parts[part]]
        said = [[usual.get(word, OUTSIDE) for word in example.words] for example in parts[part]]
        scores[part] = {FREQUENT_TAG: span_metrics(gold, said).values["f1"]}
    return scores


def _tags(example: TaggedExample) -> Sequence[str]:
    assert example.tags is not None, example.key
    return example.tags


def _of_texts(parts: dict[str, Sequence[TextExample]]) -> Scores:
    labels = {part: [str(example.label) for example in examples] for part, examples in parts.items()}
    larger = Counter(labels["train"]).most_common(1)[0][0]
    scores: Scores = {part: {LARGER_CLASS: _accuracy(labels[part], [larger] * len(labels[part]))} for part in EVALUATED}
    for name in VECTORIZERS:
        weights = _weights(name, parts)
        model = LogisticRegression(max_iter=ITERATIONS).fit(weights["train"], labels["train"])
        for part in EVALUATED:
            scores[part][name] = _accuracy(labels[part], list(model.predict(weights[part])))
    return scores


def _weights(name: str, parts: dict[str, Sequence[TextExample]]) -> dict[str, Any]:
    """The tf-idf of each part, that of the second texts of pairs in columns of their own."""
    weights: dict[str, Any] = {part: [] for part in parts}
    sides = (False, True) if parts["train"][0].second is not None else (False,)
    for second in sides:
        vectorizer = TfidfVectorizer(**VECTORIZERS[name])
        vectorizer.fit(_texts(parts["train"], second=second))
        for part, examples in parts.items():
            weights[part].append(vectorizer.transform(_texts(examples, second=second)))
    return {part: hstack(each).tocsr() for part, each in weights.items()}


def _texts(examples: Sequence[TextExample], *, second: bool) -> list[str]:
    return [(example.second or "") if second else example.text for example in examples]


def _accuracy(gold: Sequence[str], said: Sequence[str]) -> float:
    return sum(map(str.__eq__, gold, said)) / len(gold)
