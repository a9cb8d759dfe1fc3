"""Whether B follows A can be told from neither lengths nor borders of sentences: classifiers of both kinds guess."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tokenfree.core.settings import Slot
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.batches.next_sentence import PairCollator, Window
from tokenfree.train.data.loader import second_segments
from tokenfree.train.data.shards import ShardReader

Guess = Callable[[np.ndarray], np.ndarray]

NUM_PAIRS, AT_ONCE = 12_000, 2_000  # one half to fit classifiers to, one to score them on
LENGTHS, BORDERS = slice(0, 3), slice(3, 7)


def starts_sentence(window: Window, character: int) -> bool:
    """Whether what follows begins with a sentence, or the window has ended."""
    white = window["whitespace"]
    while character < len(white) and white[character]:
        character += 1
    return character in (0, len(white)) or character in window["sentence_starts"]


def pairs_of(data: str, name: str, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of A, B and both, and whether A begins and ends, B begins and ends at a border: [n, 7]; and which
    are from elsewhere, [n]."""
    objective: Any = Slot("tokenfree.train.objectives", name).config_class(name)(
        next_sentence=True, mask_fraction=0.01
    )
    collator: PairCollator = objective.collator(load_vocabulary(data), length, 0)
    reader = ShardReader(data, "train")
    features, labels = [], []
    for first in range(0, NUM_PAIRS, AT_ONCE):
        ids = np.arange(first, first + AT_ONCE)
        shards, rows = np.zeros_like(ids), ids * 7 % reader.shards[0].rows
        second = second_segments(reader, shards, rows, seed=0, sample_ids=ids)
        columns = reader.rows(collator.columns, np.append(shards, second[0]), np.append(rows, second[1]))
        batch = collator(columns, ids)
        labels.append(batch["from_elsewhere"])
        second_sizes = batch["segments"].sum(axis=1) - 1
        first_sizes = batch["mask"].sum(axis=1) - second_sizes - 3
        for row, cut in enumerate(collator.cuts(columns, ids)):
            assert (cut.num_a, cut.num_b) == (first_sizes[row], second_sizes[row])
            a, other = (
                {column: values[at] for column, values in columns.items()} for at in (row, AT_ONCE + row)
            )
            b, begin = (other, cut.begin_other) if batch["from_elsewhere"][row] else (a, cut.begin_next)
            places = (a, cut.end_a - cut.num_a), (a, cut.end_a), (b, begin), (b, begin + cut.num_b)
            borders = [starts_sentence(window, character_at(window, name, unit)) for window, unit in places]
            features.append([cut.num_a, cut.num_b, cut.num_a + cut.num_b, *borders])
    return np.array(features, dtype=np.float64), np.concatenate(labels)


def character_at(window: Window, name: str, unit: int) -> int:
    if name != "masked_subwords":
        return unit
    starts = window["subword_starts"]
    return int(starts[unit]) if unit < len(starts) else len(window["whitespace"])


def logistic_regression(x: np.ndarray, y: np.ndarray) -> Guess:
    """Fitted by Newton's method."""
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-9

    def ready(x: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(x)), (x - mean) / deviation])

    z, weights = ready(x), np.zeros(x.shape[1] + 1)
    for _ in range(20):
        p = 1 / (1 + np.exp(-z @ weights))
        weights += np.linalg.solve((z.T * (p * (1 - p))) @ z + 1e-3 * np.eye(len(weights)), z.T @ (y - p))
    return lambda x: ready(x) @ weights > 0


def tree(x: np.ndarray, y: np.ndarray, depth: int = 6, least: int = 100) -> Guess:
    """A decision tree by Gini impurity, whose leaves have at least `least` pairs."""
    best: tuple[float, int, float] | None = None
    for feature in range(x.shape[1] if depth else 0):
        order = np.argsort(x[:, feature], kind="stable")
        values, ones, sizes = x[order, feature], np.cumsum(y[order]), np.arange(1, len(y) + 1)
        at = np.flatnonzero(values[:-1] < values[1:])
        at = at[(at >= least - 1) & (at < len(y) - least)]
        if len(at):
            left, right, num_left, num_right = ones[at], ones[-1] - ones[at], sizes[at], len(y) - sizes[at]
            impurity = left * (num_left - left) / num_left + right * (num_right - right) / num_right
            k = int(impurity.argmin())
            if best is None or impurity[k] < best[0]:
                best = float(impurity[k]), feature, float(values[at[k]])
    if best is None:
        answer = y.mean() > 0.5
        return lambda x: np.full(len(x), answer)
    _, feature, value = best
    low = x[:, feature] <= value
    below, above = tree(x[low], y[low], depth - 1, least), tree(x[~low], y[~low], depth - 1, least)
    return lambda x: np.where(x[:, feature] <= value, below(x), above(x))


@pytest.mark.parametrize(("name", "length"), [("canine_s", 1024), ("masked_subwords", 256)])
def test_lengths_and_borders_do_not_tell_what_follows(long_corpus: str, name: str, length: int) -> None:
    x, y = pairs_of(long_corpus, name, length)
    half = NUM_PAIRS // 2
    assert y.mean() == pytest.approx(0.5, abs=0.01)
    assert x[:, 2].mean() > 0.75 * length  # A and B still fill the input
    for columns in (LENGTHS, BORDERS, slice(None)):
        for fit in (logistic_regression, tree):
            guess = fit(x[:half, columns], y[:half])
            accuracy = float((guess(x[half:, columns]) == y[half:]).mean())
            assert accuracy == pytest.approx(0.5, abs=0.03), (fit.__name__, columns)


def test_the_classifiers_see_what_there_is() -> None:
    """A total that is a little shorter where B is from elsewhere, or two flags that agree, do not pass."""
    rng = np.random.default_rng(0)
    y = rng.random(4000) < 0.5
    total = 200 + rng.normal(0, 10, 4000) - 20 * y
    alike = rng.random(4000) < 0.5
    for x, fit in (
        (total[:, None], logistic_regression),
        (np.column_stack([alike, alike ^ y]).astype(float), tree),
    ):
        guess = fit(x[:2000], y[:2000])
        assert (guess(x[2000:]) == y[2000:]).mean() > 0.8
