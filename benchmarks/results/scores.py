"""Scores of predictions: F1 of names by length and by whether training has seen them, accuracy of texts by domain."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.results.data import Example

Span = tuple[int, int, str]
LENGTHS = {"1 word": (1, 1), "2 words": (2, 2), "3 words or more": (3, 10**9)}


def spans(tags: Sequence[str]) -> set[Span]:
    """Return the first word, the end and the type of each name.

    An I- tag that does not continue a name begins one.
    """
    found: list[Span] = []
    before = "O"
    for place, tag in enumerate(tags):
        if tag != "O":
            begins = tag.startswith("B-") or before[2:] != tag[2:]
            start = place if begins else found.pop()[0]
            found.append((start, place + 1, tag[2:]))
        before = tag
    return set(found)


def name_scores(
    train: Sequence[Example], gold: Sequence[Example], tags: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return the F1 of all names, of names whose text is not a name in the training part, and of names by length.

    The F1 of a group counts only names and predictions that belong to the group.
    """
    known = {_name(each["tokens"], span) for each in train for span in spans(each["ner_tags"])}
    pairs = [
        (each["tokens"], spans(each["ner_tags"]), spans(said)) for each, said in zip(gold, tags, strict=True)
    ]

    def f1(fits: Callable[[Sequence[str], Span], bool]) -> tuple[float, int]:
        right = wanted = given = 0
        for words, names, said in pairs:
            names, said = ({span for span in side if fits(words, span)} for side in (names, said))
            right, wanted, given = right + len(names & said), wanted + len(names), given + len(said)
        return 2 * right / max(wanted + given, 1), wanted

    found = {
        "": f1(lambda words, span: True),
        " unseen": f1(lambda words, span: _name(words, span) not in known),
    }
    for label, (low, high) in LENGTHS.items():
        found[f" {label}"] = f1(lambda words, span, low=low, high=high: low <= span[1] - span[0] <= high)
    return {
        f"{what}{which}": value
        for which, pair in found.items()
        for what, value in zip(("f1", "names"), pair, strict=True)
    }


def text_scores(gold: Sequence[Example], labels: Sequence[str]) -> dict[str, float]:
    """Return the accuracy.

    For a set with domains, also return that of each; `accuracy` is the mean over domains.
    """
    right: dict[str, list[bool]] = {}
    for example, label in zip(gold, labels, strict=True):
        right.setdefault(example.get("domain", ""), []).append(example["label"] == label)
    by_domain = {domain: statistics.fmean(values) for domain, values in right.items()}
    named = {f"accuracy {domain}": value for domain, value in by_domain.items() if domain}
    return {"accuracy": statistics.fmean(by_domain.values()), **named}


def _name(words: Sequence[str], span: Span) -> str:
    return " ".join(words[span[0] : span[1]])
