"""Linear models over n-grams, which a user fits in seconds: what our models must beat.

Names: a linear-chain CRF (python-crfsuite, trained by L-BFGS) over the features that taggers of names use.
Texts: logistic regression over tf-idf of words and pairs of words and of characters within words, its C chosen
on the development part. Nobody needs python-crfsuite for anything else, so it is not in the lock:

    pip install --target /tmp/peers python-crfsuite
    PYTHONPATH=/tmp/peers python -m benchmarks.results run --only '*-linear-0'
"""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_union

from benchmarks.results.data import Example

CRF, REGRESSION = "CRF over n-grams", "logistic regression over n-grams"
PARAMETERS = {"c1": 0.1, "c2": 0.05, "max_iterations": 120, "feature.possible_transitions": True}
STRENGTHS = (1.0, 3.0, 10.0)  # C
Parts = Mapping[str, Sequence[Example]]


def crf(parts: Parts) -> dict[str, list[list[str]]]:
    """Return the tags of the development and test parts by a CRF of the training part."""
    pycrfsuite: Any = importlib.import_module("pycrfsuite")
    trainer, tagger = pycrfsuite.Trainer(verbose=False), pycrfsuite.Tagger()
    for example in parts["train"]:
        trainer.append(_rows(example["tokens"]), example["ner_tags"])
    trainer.set_params(PARAMETERS)
    with tempfile.NamedTemporaryFile() as file:
        trainer.train(file.name)
        tagger.open(file.name)
        return {
            part: [tagger.tag(_rows(example["tokens"])) for example in parts[part]]
            for part in ("dev", "test")
        }


def _rows(words: Sequence[str]) -> list[list[str]]:
    return [_features(words, place) for place in range(len(words))]


def _features(words: Sequence[str], place: int) -> list[str]:
    word = words[place]
    lower = word.lower()
    marked = f"^{lower}$"
    features = ["bias", f"lower={lower}", f"word={word}", f"shape={_shape(word)}"]
    features += [f"trigram={marked[start : start + 3]}" for start in range(len(marked) - 2)]
    for size in range(1, 6):
        features += [f"first {size}={lower[:size]}", f"last {size}={lower[-size:]}"]
    for distance in (-2, -1, 1, 2):
        inside = 0 <= place + distance < len(words)
        other = words[place + distance] if inside else "<>"
        features += [
            f"{distance} lower={other.lower()}",
            f"{distance} shape={_shape(other)}",
            f"{distance} last={other[-3:].lower()}",
        ]
    return features


def _shape(word: str) -> str:
    """Return the classes of ASCII letters and digits, other characters as they are, equal neighbours once."""
    classes = re.sub(r"\d", "0", re.sub("[a-z]", "a", re.sub("[A-Z]", "A", word)))
    return re.sub(r"(.)\1+", r"\1+", classes)


def regression(parts: Parts) -> dict[str, list[str]]:
    """Return the labels of the development and test parts by the regression that is best on the development part."""
    features = make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+"),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2),
    )
    texts = {part: [example["text"] for example in examples] for part, examples in parts.items()}
    labels = {part: [example["label"] for example in examples] for part, examples in parts.items()}
    train = features.fit_transform(texts["train"])
    others = {part: features.transform(texts[part]) for part in ("dev", "test")}
    models = [
        LogisticRegression(C=strength, max_iter=300).fit(train, labels["train"]) for strength in STRENGTHS
    ]
    best = max(models, key=lambda model: model.score(others["dev"], labels["dev"]))
    return {part: list(best.predict(rows)) for part, rows in others.items()}
