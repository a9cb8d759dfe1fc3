"""The linear path over hashed n-grams against sums written out."""

import math

import numpy as np
import pytest
import torch

from tokenfree.train.batches.ngrams import NO_FEATURE
from tokenfree.train.model.neighbours.hashed_ngrams import Config, HashedNgrams, LabelledFeatures

BUCKETS = 16


def new_path(dropout: float = 0.0) -> HashedNgrams:
    torch.manual_seed(0)
    path = Config(buckets=BUCKETS, dropout=dropout).build(3)
    assert not path(torch.tensor([[5, 7]])).any(), "a new path scores 0"
    torch.nn.init.normal_(path.rows.weight)
    return path


def test_hashed_ngrams_sum_the_rows_of_features() -> None:
    path = new_path()
    rows = path.rows.weight
    features = torch.tensor([[5, 7 + BUCKETS, NO_FEATURE], [NO_FEATURE, NO_FEATURE, NO_FEATURE]])
    torch.testing.assert_close(path(features), torch.stack([rows[5] + rows[7], torch.zeros(3)]))


def test_hashed_ngrams_weight_counts_by_tf_idf() -> None:
    path = new_path()
    path.learn(np.array(text) for text in ([5, 7, 7 + BUCKETS], [5, NO_FEATURE], [5, 1]))
    idf = {5: math.log(4 / 4) + 1, 7: math.log(4 / 2) + 1, 9: math.log(4 / 1) + 1}
    for row, value in idf.items():
        torch.testing.assert_close(path.idf[row], torch.tensor(value))
    weights = torch.tensor([idf[5] * (1 + math.log(2)), idf[7]])
    expected = weights @ path.rows.weight[[5, 7]] / weights.norm()
    features, counts = torch.tensor([[5, 7, NO_FEATURE]]), torch.tensor([[2, 1, 1]])
    torch.testing.assert_close(path(features, counts), expected[None])


def test_hashed_ngrams_drop_features_in_training_only() -> None:
    path = new_path(dropout=0.5)
    features = torch.arange(BUCKETS)[None].repeat(200, 1)
    torch.testing.assert_close(path.eval()(features)[0], path.rows.weight.sum(dim=0))
    dropped = path.train()(features)
    assert len(dropped.unique(dim=0)) > 100
    torch.testing.assert_close(dropped.mean(dim=0), path.rows.weight.sum(dim=0), atol=1.5, rtol=0)


def test_hashed_ngrams_leave_out_rare_features() -> None:
    path = Config(buckets=BUCKETS, min_count=2).build(3)
    torch.nn.init.normal_(path.rows.weight)
    path.learn(np.array(text) for text in ([5, 7, 7], [5, 1], [5, 1]))
    features = torch.tensor([[5, 7, 1, NO_FEATURE]])
    torch.testing.assert_close(path(features), path.rows.weight[[5, 1]].sum(dim=0, keepdim=True))


def test_hashed_ngrams_rows_have_their_own_weight_decay() -> None:
    assert Config(weight_decay=0.5).build(3).optimizer_options["weight_decay"] == 0.5


def texts_of(rng: np.random.Generator, classes: list[int]) -> LabelledFeatures:
    """Texts of six features each, of which one in two is that of the class."""
    texts = [
        np.where(rng.random((1, 2, 6)) < 0.5, number, rng.integers(3, BUCKETS, (1, 2, 6)))
        for number in classes
    ]
    ones = torch.ones((1, 2, 6), dtype=torch.int64)
    return LabelledFeatures([(torch.from_numpy(text), ones) for text in texts], classes)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_hashed_ngrams_begin_as_a_logistic_regression(num_classes: int) -> None:
    """At the fitted rows, the gradient of the loss with its squared rows is 0."""
    classes = [number % num_classes for number in range(40)]
    train = texts_of(np.random.default_rng(0), classes)
    path = Config(buckets=BUCKETS, strengths=(2.0,), min_count=1).build(num_classes)
    path.learn(features.numpy() for features, _ in train.texts)
    bias_K = path.fit(train, None)
    scores = torch.stack([path(*text).sum(dim=(0, 1)) for text in train.texts]) + bias_K
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(classes), reduction="sum")
    # Two classes have one vector of weights, which is twice the second row.
    strength = 2.0 if num_classes > 2 else 1.0
    (loss + path.rows.weight.square().sum() / (2 * strength)).backward()
    assert loss < 0.8 * 40 * math.log(num_classes)
    assert path.rows.weight.grad is not None
    assert path.rows.weight.grad.abs().max() < 0.01


def test_hashed_ngrams_take_the_strength_that_is_best_on_held_out_texts() -> None:
    rng = np.random.default_rng(0)
    held_out = texts_of(rng, [0, 1, 1, 1, 1, 1])
    # Labels at random: the weakest path says the larger class of held-out texts, as its scores are those of none.
    train = LabelledFeatures(texts_of(rng, [2] * 60).texts, [0] * 25 + [1] * 35)
    norms = {}
    for strengths in ((1e-6,), (1e3,), (1e3, 1e-6)):
        path = Config(buckets=BUCKETS, strengths=strengths, min_count=1).build(3)
        path.learn(features.numpy() for features, _ in train.texts)
        path.fit(train, held_out)
        norms[strengths] = path.rows.weight.norm().item()
    assert norms[1e3,] > 1 > norms[1e-6,]
    assert norms[1e3, 1e-6] == norms[1e-6,]
