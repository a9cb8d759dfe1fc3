import math

import torch

from tokenfree.train.tasks.question_answering.head import SpanHead, SpanLogits, span_loss


def test_two_logits_a_character_and_one_a_type() -> None:
    torch.manual_seed(0)
    head = SpanHead(6, num_types=5)
    characters_BCD, pooled_BD = torch.randn(3, 7, 6), torch.randn(3, 6)
    logits = head(characters_BCD, pooled_BD)
    assert logits.type_BT is not None
    assert (logits.start_BC.shape, logits.end_BC.shape, logits.type_BT.shape) == ((3, 7), (3, 7), (3, 5))
    torch.testing.assert_close(logits.start_BC[1, 2], head.spans.weight[0] @ characters_BCD[1, 2])
    torch.testing.assert_close(logits.end_BC[1, 2], head.spans.weight[1] @ characters_BCD[1, 2])
    assert head.spans.weight.std() < 0.04
    assert not head.spans.bias.any()
    assert SpanHead(6)(characters_BCD, pooled_BD).type_BT is None


def test_the_loss_is_the_mean_of_three_with_padding_in_the_softmax() -> None:
    zeros = torch.zeros(2, 8)
    first_B, last_B, kind_B = torch.tensor([3, 0]), torch.tensor([5, 0]), torch.tensor([3, 0])
    loss_B = span_loss(SpanLogits(zeros, zeros, torch.zeros(2, 5)), first_B, last_B, kind_B)
    torch.testing.assert_close(loss_B, torch.full((2,), (2 * math.log(8) + math.log(5)) / 3))
    without = span_loss(SpanLogits(zeros, zeros, None), first_B, last_B, kind_B)
    torch.testing.assert_close(without, torch.full((2,), math.log(8)))
    sure = torch.zeros(2, 8)
    sure[0, 3] = sure[1, 0] = 50.0
    torch.testing.assert_close(
        span_loss(SpanLogits(sure, zeros, None), first_B, last_B, kind_B), torch.full((2,), math.log(8) / 2)
    )
