"""Scores of tagged sentences: accuracy of tags, and labelled F1 of spans as conlleval counts them, by nervaluate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nervaluate.loaders import ListLoader
from nervaluate.strategies import StrictEvaluation

from tokenfree.train.tasks.metrics.metrics import Metrics

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
    loader, strict = ListLoader(), StrictEvaluation()
    correct, said, there = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(
        loader.load([list(tags) for tags in gold]), loader.load([list(tags) for tags in predicted]), strict=True
    ):
        # Sentence by sentence its cost grows with the spans of one; evaluator.Evaluator adds three other strategies.
        _, indices = strict.evaluate(ours, theirs, [])
        correct.update(theirs[number].label for _, number in indices.correct_indices)
        said.update(span.label for span in theirs)
        there.update(span.label for span in ours)
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
