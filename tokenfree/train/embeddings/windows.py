"""Texts longer than a model reads, as windows that together are the whole text."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tokenfree.preprocess.text.sentences import sentence_starts
from tokenfree.preprocess.text.windows import cut


def spans(text: str, most: int) -> list[tuple[int, int]]:
    """Codepoint spans of at most `most` characters, each beginning where the one before ends; at least one.

    They begin at sentences where possible, else at words, as the windows of training do.
    """
    if len(text) <= most:
        return [(0, len(text))]
    starts = [start for start, _ in cut(text, sentence_starts(text).astype(np.int64), most)]
    edges = [0]
    for edge in [*starts[1:], len(text)]:
        while edge - edges[-1] > most:  # white space behind a full window
            edges.append(edges[-1] + most)
        if edge > edges[-1]:
            edges.append(edge)
    return list(pairwise(edges))
