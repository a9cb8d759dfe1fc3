"""Measure what needs no fine-tuning: baselines, linear models, and linear probes on the frozen embeddings of a run.

    python -m benchmarks.results.simple --data FOLDER --set swa --output FILE [--linear | --encoder RUN]

It writes the scores of a set by predictor and part as JSON. The baselines are those of `tokenfree finetune`,
fitted to the whole training part. Linear models are in benchmarks/results/linear.py. The regularisation of a
probe is chosen on the development part.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.results.data import NAMES, PAIRS, PARTS, SETS, TEXTS, Example, examples
from benchmarks.results.linear import CRF, REGRESSION, crf, regression
from benchmarks.results.scores import name_scores, text_scores
from tokenfree.train.tasks import classification, pairs, tagging
from tokenfree.train.tasks.examples.tagged import TaggedExample
from tokenfree.train.tasks.examples.texts import TextExample

FREQUENT_TAG, LARGER_CLASS, NGRAMS, PROBE = (
    "most frequent tag",
    "larger class",
    "character n-grams",
    "linear probe",
)
STRENGTHS = (0.1, 1.0, 10.0)  # C of the logistic regression: inverse strength of its regularisation
BATCH = 64

Parts = dict[str, list[Example]]
Predicted = dict[str, list[Any]]  # by part: labels, or tags of each sentence


def measure(
    folder: Path, name: str, run: Path | None, *, linear: bool = False
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the scores of a set by predictor and part: of baselines, of a linear model, or of the probe of a run."""
    made = {part: examples(folder, name, part) for part in PARTS}
    of_names = SETS[name].kind == NAMES
    if run is not None:
        encode = Embedder(run)
        found = {PROBE: _name_probe(made, encode) if of_names else _text_probe(made, encode)}
    elif linear:
        found = {CRF: crf(made)} if of_names else {REGRESSION: regression(made)}
    else:
        found = _baselines(made, SETS[name].kind)
    return {
        label: {part: _scores(made, part, said[part]) for part in ("dev", "test")}
        for label, said in found.items()
    }


def _scores(made: Parts, part: str, said: Sequence[Any]) -> dict[str, float]:
    gold = made[part]
    return name_scores(made["train"], gold, said) if "tokens" in gold[0] else text_scores(gold, said)


def _baselines(made: Parts, kind: str) -> dict[str, Predicted]:
    task = {NAMES: tagging, TEXTS: classification, PAIRS: pairs}[kind].Config()
    converted = {part: [_converted(example) for example in examples] for part, examples in made.items()}
    field = "tags" if kind == NAMES else "label"
    return {
        name: {part: [line[field] for line in predict(converted[part])] for part in ("dev", "test")}
        for name, predict in task.fitted(converted["train"]).baselines(converted["train"]).items()
    }


def _converted(example: Example) -> TaggedExample | TextExample:
    if "tokens" in example:
        return TaggedExample("", tuple(example["tokens"]), tuple(example["ner_tags"]))
    first = example.get("text") or example["sentence1"]
    return TextExample("", first, example.get("sentence2"), example["label"])


def _text_probe(made: Parts, encode: Embedder) -> Predicted:
    def means(part: str, column: str) -> np.ndarray:
        texts = [each[column] for each in made[part]]
        return np.concatenate(encode(texts, [[(0, len(text))] for text in texts]))

    features = {}
    for part in PARTS:
        if "text" in made[part][0]:
            features[part] = means(part, "text")
        else:
            one, other = means(part, "sentence1"), means(part, "sentence2")
            features[part] = np.hstack([one, other, np.abs(one - other), one * other])
    return _best(_scaled(features), made, lambda part, said: list(said))


def _name_probe(made: Parts, encode: Embedder) -> Predicted:
    features = {}
    for part in PARTS:
        places = []
        for example in made[part]:
            # A space follows each word.
            ends = np.cumsum([len(word) + 1 for word in example["tokens"]]).tolist()
            places.append(
                [(end - 1 - len(word), end - 1) for word, end in zip(example["tokens"], ends, strict=True)]
            )
        features[part] = np.concatenate(encode([" ".join(each["tokens"]) for each in made[part]], places))

    def sentences(part: str, said: Sequence[str]) -> list[list[str]]:
        ends = np.cumsum([len(each["tokens"]) for each in made[part]])[:-1]
        return [list(each) for each in np.split(np.asarray(said), ends)]

    return _best(_scaled(features), made, sentences)


def _best(
    features: dict[str, Any], made: Parts, predicted: Callable[[str, Sequence[str]], list[Any]]
) -> Predicted:
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


class Embedder:
    """The frozen character embeddings of a run, for texts of any length."""

    def __init__(self, run: Path) -> None:
        import torch  # only here, so that the baselines start faster

        from tokenfree import load_encoder

        torch.set_num_threads(1)
        self._encoder = load_encoder(run)
        self._width = self._encoder.encoder.config.width

    def __call__(self, texts: Sequence[str], places: Sequence[Sequence[tuple[int, int]]]) -> list[np.ndarray]:
        """Return float [places, width] for each text: the means over its characters from `start` to `end`.

        Texts are read in windows that do not overlap. Embeddings are not kept, because those of all
        characters take gigabytes.
        """
        most = self._encoder.max_characters
        pieces = [(text, at) for text in range(len(texts)) for at in range(0, len(texts[text]), most)]
        pieces.sort(key=lambda piece: len(texts[piece[0]]) - piece[1])
        sums = [np.zeros((len(each), self._width), dtype=np.float32) for each in places]
        for batch in (pieces[at : at + BATCH] for at in range(0, len(pieces), BATCH)):
            encoded = self._encoder([texts[text][at : at + most] for text, at in batch]).characters.numpy()
            for vectors, (text, at) in zip(encoded[:, 1:], batch, strict=True):  # without CLS
                for place, (start, end) in enumerate(places[text]):
                    low, high = max(start - at, 0), min(end - at, most)
                    if low < high:
                        sums[text][place] += vectors[low:high].sum(axis=0)
        sizes = [np.array([[end - start] for start, end in each], dtype=np.float32) for each in places]
        return [total / size for total, size in zip(sums, sizes, strict=True)]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure a set and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--set", required=True, choices=SETS, help="name of the set")
    parser.add_argument("--encoder", type=Path, metavar="RUN", help="probe this pretraining run")
    parser.add_argument("--linear", action="store_true", help="measure the linear model over n-grams")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args(argv)
    scores = measure(arguments.data, arguments.set, arguments.encoder, linear=arguments.linear)
    arguments.output.write_text(json.dumps(scores) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
