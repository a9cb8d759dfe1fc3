"""The head of tags: the cost of missing a span, in training only."""

import torch

from tokenfree.core.settings import build
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.heads import PlaceHead

OUTSIDE = 1


def test_place_head_adds_the_cost_to_outside_where_a_span_is_missed() -> None:
    head = PlaceHead(build(ModelConfig, {}, source="test"), 3, dropout=0.0, outside=OUTSIDE, miss_cost=2.0)
    logits_BPK = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]]])
    tags_BP = torch.tensor([[2, OUTSIDE]])
    batch = {"classes": tags_BP, "target_mask": torch.ones(1, 2, dtype=torch.bool)}
    costly_BPK = torch.tensor([[[0.0, 3.0, 2.0], [3.0, 1.0, 0.0]]])
    for training, scores_BPK in ((True, costly_BPK), (False, logits_BPK)):
        loss = head.train(training).loss({"logits": logits_BPK}, batch)
        expected = torch.nn.functional.cross_entropy(scores_BPK[0], tags_BP[0], reduction="sum")
        torch.testing.assert_close(loss.total, expected)
