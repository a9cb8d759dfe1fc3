import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.train.tasks.conftest import CHARACTERS
from tokenfree.core.settings import build
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.questions import SpanDecoder, SpanHead


@pytest.fixture
def encoder() -> nn.Module:
    torch.manual_seed(0)
    return build(ModelConfig, CHARACTERS, source="test").build().eval()


def batch(**arrays: Tensor) -> Mapping[str, Tensor]:
    return {
        "codepoints": torch.arange(65, 73).repeat(2, 1),
        "mask": torch.ones(2, 8, dtype=torch.bool),
    } | arrays


ANSWERS = {
    "choices": torch.ones(2, 8, dtype=torch.bool),
    "first": torch.tensor([3, 0]),
    "last": torch.tensor([5, 0]),
    "kind": torch.tensor([3, 0]),
    "target_mask": torch.ones(2, 1, dtype=torch.bool),
}


def test_two_logits_a_character_and_one_a_type(encoder: nn.Module) -> None:
    head = SpanHead(16, SpanDecoder(), num_types=5)
    found = head.outputs(encoder, batch())
    out = encoder(batch()["codepoints"], batch()["mask"])
    torch.testing.assert_close(found["start"], out.characters @ head.spans.weight[0])
    torch.testing.assert_close(found["end"], out.characters @ head.spans.weight[1])
    assert head.types is not None
    torch.testing.assert_close(found["type"], head.types(out.pooled))
    assert head.spans.weight.abs().max() <= 0.04
    assert set(SpanHead(16, SpanDecoder()).outputs(encoder, batch())) == {"start", "end"}


def test_the_loss_is_the_mean_of_three_with_padding_in_the_softmax() -> None:
    zeros = torch.zeros(2, 8)
    loss = SpanHead(16, SpanDecoder(), 5).loss(
        {"start": zeros, "end": zeros, "type": torch.zeros(2, 5)}, ANSWERS
    )
    assert loss.total.item() == pytest.approx(2 * (2 * math.log(8) + math.log(5)) / 3)
    assert (loss.num_targets.item(), loss.num_correct.item()) == (2, 1)
    two = SpanHead(16, SpanDecoder())
    assert two.loss({"start": zeros, "end": zeros}, ANSWERS).total.item() == pytest.approx(2 * math.log(8))
    some = ANSWERS | {"choices": torch.arange(8).expand(2, 8) < 6}
    assert two.loss({"start": zeros, "end": zeros}, some).total.item() == pytest.approx(2 * math.log(6))
    first = ANSWERS | {"target_mask": torch.tensor([[True], [False]])}
    only = two.loss({"start": zeros, "end": zeros}, first)
    assert only.total.item() == pytest.approx(math.log(8))
    assert (only.num_targets.item(), only.num_correct.item()) == (1, 0)


def test_what_is_kept_is_the_best_span_in_bytes() -> None:
    start, end = torch.zeros(2, 8), torch.zeros(2, 8)
    start[0, 4], end[0, 5], start[0, 0], end[0, 0] = 3.0, 2.0, 0.5, 0.25
    places = {"starts": torch.full((2, 8), -1), "ends": torch.full((2, 8), -1), "choices": ANSWERS["choices"]}
    places["starts"][0, 3:7], places["ends"][0, 3:7] = (
        torch.tensor([10, 11, 13, 16]),
        torch.tensor([11, 13, 16, 17]),
    )
    kept = SpanHead(16, SpanDecoder()).kept({"start": start, "end": end}, places)
    assert (kept["begin"][0].item(), kept["end"][0].item(), kept["score"][0].item()) == (11, 16, 4.25)
    assert kept["score"][1].item() == -np.inf


def test_padding_that_is_no_choice_takes_no_place_among_the_candidates() -> None:
    start, end = torch.zeros(1, 8), torch.zeros(1, 8)
    start[0, 3], end[0, 4] = 1.0, 1.0
    start[0, 6:], end[0, 6:] = 5.0, 5.0  # padding
    choices = torch.arange(8)[None] < 6
    places = torch.tensor([[-1, -1, 10, 11, 12, -1, -1, -1]])
    arrays = {"starts": places, "ends": places + 1, "choices": choices}
    kept = SpanHead(16, SpanDecoder(candidates=2)).kept({"start": start, "end": end}, arrays)
    assert (kept["begin"].item(), kept["end"].item(), kept["score"].item()) == (11, 13, 2.0)
