"""Which labels a fine-tuned run finds and confuses: a picture of counts, and the scores of each label."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from tokenfree.workflows.report.figures.confusion_figure import MOST_LABELS, confusion
from tokenfree.workflows.report.sections.parts import Block, Table, decimal

MOST_ROWS = 40


def label_block(title: str, lines: Sequence[Mapping[str, Any]]) -> Block | None:
    """Of predictions of labels, or of a tag for each word, with the right answers; None of others."""
    pairs = [pair for line in lines for pair in _pairs(line)]
    if not pairs or any(not isinstance(label, str) for pair in pairs for label in pair):
        return None
    gold, found = zip(*pairs, strict=True)
    labels = sorted(set(gold) | set(found))
    counts = confusion_matrix(gold, found, labels=labels)
    precision, recall, f1, _ = (
        np.asarray(each)
        for each in precision_recall_fscore_support(gold, found, labels=labels, zero_division=0)  # pyright: ignore
    )
    order = np.argsort(-counts.sum(axis=1), kind="stable")[:MOST_ROWS]
    rows = [
        [
            labels[at],
            f"{counts[at].sum():,}",
            f"{counts[:, at].sum():,}",
            *(decimal(float(each[at]), 3) for each in (precision, recall, f1)),
        ]
        for at in order
    ]
    caption = "Labels" if len(labels) <= MOST_ROWS else f"The {MOST_ROWS} most frequent of {len(labels)} labels"
    table = Table(caption, ["label", "examples", "found", "precision", "recall", "F1"], rows)
    pictures = [confusion(counts, labels, title="Labels, right and found")] if len(labels) <= MOST_LABELS else []
    return Block(title, pictures=pictures, tables=[table])


def _pairs(line: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """The right label and the one found, of each word where words have tags."""
    gold = line.get("gold")
    if "label" in line and "gold" in line:
        return [(gold, line["label"])]
    tags = line.get("tags")
    if isinstance(tags, list) and isinstance(gold, list) and len(tags) == len(gold):
        return list(zip(gold, tags, strict=True))
    return []
