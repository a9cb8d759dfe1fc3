"""The linear path over hashed n-grams against sums written out."""

import math

import numpy as np
import torch

from tokenfree.train.batches.ngrams import NO_FEATURE
from tokenfree.train.model.neighbours.hashed_ngrams import Config, HashedNgrams

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
