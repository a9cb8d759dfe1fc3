"""What needs no fine-tuning: simple baselines, and linear probes over the frozen character embeddings of a run.

    python -m benchmarks.results.simple --data FOLDER --set swa --output FILE [--encoder RUN]

Each prints a set's scores by predictor and part as JSON. Regularisation is chosen on the development part.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.results.data import NAMES, PARTS, SETS, Example, examples
from benchmarks.results.scores import name_scores, text_scores

FREQUENT_TAG, LARGER_CLASS, NGRAMS, PROBE = "most frequent tag", "larger class", "character n-grams", "linear probe"
STRENGTHS = (0.1, 1.0, 10.0)  # C of the logistic regression: the inverse of its regularisation
VECTORIZER = {"sublinear_tf": True, "analyzer": "char", "ngram_range": (1, 4), "min_df": 2, "max_features": 200_000}
BATCH = 64

Parts = dict[str, list[Example]]
Predicted = dict[str, list[Any]]  # by part: labels, or tags of each sentence


def measure(folder: Path, name: str, run: Path | None) -> dict[str, dict[str, dict[str, float]]]:
    """Return the scores by predictor and part of a set: of baselines, or of the probe of a run."""
    made = {part: examples(folder, name, part) for part in PARTS}
    of_names = SETS[name].kind == NAMES
    if run is not None:
        encode = Embedder(run)
        found = {PROBE: _name_probe(made, encode) if of_names else _text_probe(made, encode)}
    elif of_names:
        found = {FREQUENT_TAG: _frequent_tag(made)}
    else:
        larger = Counter(each["label"] for each in made["train"]).most_common(1)[0][0]
        found = {LARGER_CLASS: {part: [larger] * len(made[part]) for part in PARTS}, NGRAMS: _ngrams(made)}
    return {label: {part: _scores(made, part, said[part]) for part in ("dev", "test")} for label, said in found.items()}


def _scores(made: Parts, part: str, said: Sequence[Any]) -> dict[str, float]:
    gold = made[part]
    return name_scores(made["train"], gold, said) if "tokens" in gold[0] else text_scores(gold, said)


def _frequent_tag(made: Parts) -> Predicted:
    seen: dict[str, Counter[str]] = {}
    for example in made["train"]:
        for word, tag in zip(example["tokens"], example["ner_tags"], strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    usual = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    return {part: [[usual.get(word, "O") for word in each["tokens"]] for each in made[part]] for part in PARTS}


def _ngrams(made: Parts) -> Predicted:
    columns = [name for name in ("text", "sentence1", "sentence2") if name in made["train"][0]]
    features: dict[str, list[csr_matrix]] = {part: [] for part in PARTS}
    for column in columns:
        vectorizer = TfidfVectorizer(**VECTORIZER).fit([each[column] for each in made["train"]])
        for part in PARTS:
            features[part].append(vectorizer.transform([each[column] for each in made[part]]))
    return _best({part: hstack(found).tocsr() for part, found in features.items()}, made, lambda part, said: list(said))


def _text_probe(made: Parts, encode: Embedder) -> Predicted:
    features = {}
    for part in PARTS:
        if "text" in made[part][0]:
            features[part] = np.stack([_mean(each) for each in encode([each["text"] for each in made[part]])])
        else:
            one, other = (
                np.stack([_mean(each) for each in encode([each[column] for each in made[part]])])
                for column in ("sentence1", "sentence2")
            )
            features[part] = np.hstack([one, other, np.abs(one - other), one * other])
    return _best(_scaled(features), made, lambda part, said: list(said))


def _name_probe(made: Parts, encode: Embedder) -> Predicted:
    features = {}
    for part in PARTS:
        words = []
        for example, characters in zip(
            made[part], encode([" ".join(each["tokens"]) for each in made[part]]), strict=True
        ):
            start = 0
            for word in example["tokens"]:
                words.append(_mean(characters[start : start + len(word)]))
                start += len(word) + 1
        features[part] = np.stack(words)

    def sentences(part: str, said: Sequence[str]) -> list[list[str]]:
        ends = np.cumsum([len(each["tokens"]) for each in made[part]])[:-1]
        return [list(each) for each in np.split(np.asarray(said), ends)]

    return _best(_scaled(features), made, sentences)


def _best(features: dict[str, Any], made: Parts, predicted: Callable[[str, Sequence[str]], list[Any]]) -> Predicted:
    """Return the predictions of the logistic regression that is best on the development part."""
    labels = [label for each in made["train"] for label in each.get("ner_tags", [each.get("label")])]
    found = []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=300).fit(features["train"], labels)
        said = {part: predicted(part, model.predict(features[part])) for part in ("dev", "test")}
        scores = _scores(made, "dev", said["dev"])
        found.append((scores.get("f1", scores.get("accuracy")), said))
    return max(found, key=lambda each: each[0])[1]


def _scaled(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    scaler = StandardScaler().fit(features["train"])
    return {part: np.asarray(scaler.transform(found)) for part, found in features.items()}


def _mean(vectors: np.ndarray) -> np.ndarray:
    return vectors.mean(axis=0)


class Embedder:
    """The frozen character embeddings of a run, for texts of any length."""

    def __init__(self, run: Path) -> None:
        import torch  # here, so that the baselines start sooner

        from tokenfree import load_encoder

        torch.set_num_threads(1)
        self._encoder = load_encoder(run)

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return float [characters, width] of each text; texts are read in windows that do not overlap."""
        most = self._encoder.max_characters
        pieces = [
            (number, text[at : at + most]) for number, text in enumerate(texts) for at in range(0, len(text), most)
        ]
        order = sorted(range(len(pieces)), key=lambda piece: len(pieces[piece][1]))
        vectors: dict[int, np.ndarray] = {}
        for at in range(0, len(order), BATCH):
            batch = order[at : at + BATCH]
            encoded = self._encoder([pieces[piece][1] for piece in batch]).characters.numpy()
            for row, piece in enumerate(batch):
                vectors[piece] = encoded[row, 1 : 1 + len(pieces[piece][1])].copy()
        found: list[list[np.ndarray]] = [[] for _ in texts]
        for piece, (number, _) in enumerate(pieces):
            found[number].append(vectors[piece])
        return [np.concatenate(each) for each in found]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure a set; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--set", required=True, choices=SETS, help="name of the set")
    parser.add_argument("--encoder", type=Path, metavar="RUN", help="probe this pretraining run")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args(argv)
    scores = measure(arguments.data, arguments.set, arguments.encoder)
    arguments.output.write_text(json.dumps(scores) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
