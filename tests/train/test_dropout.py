"""Dropout: rate, scale, seeds, and the same mask in both passes."""

import pytest
import torch

from train.dropout import Dropout, average, dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale(rate: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1001, 997, requires_grad=True)
    y = dropout(x, rate, training=True)
    assert (y == 0).double().mean().item() == pytest.approx(rate, abs=0.003)
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    assert y.unique().numel() == 2
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y)


def test_places_are_independent() -> None:
    torch.manual_seed(0)
    zero = (dropout(torch.ones(1_000_000), 0.25, training=True) == 0).double()
    for lag in (1, 2, 3, 4, 8):
        assert (zero[lag:] * zero[:-lag]).mean().item() == pytest.approx(0.0625, abs=0.002)
    assert zero.view(-1, 4).mean(dim=0).tolist() == pytest.approx([0.25] * 4, abs=0.004)  # four places share a draw


def test_seeds_decide() -> None:
    layer = Dropout(0.3)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(layer(torch.ones(5, 7)))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_evaluation_and_no_rate_change_nothing() -> None:
    x = torch.randn(4, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0)(x) is x


def test_average_is_dropout_and_product() -> None:
    weights = torch.rand(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    values = torch.randn(2, 3, 7, 4, dtype=torch.float64, requires_grad=True)
    by = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    torch.manual_seed(5)
    ours = average(weights, values, 0.4)
    torch.manual_seed(5)
    wanted = dropout(weights, 0.4, training=True) @ values
    torch.testing.assert_close(ours, wanted, atol=1e-12, rtol=0)
    for one, other in zip(
        torch.autograd.grad((ours * by).sum(), [weights, values]),
        torch.autograd.grad((wanted * by).sum(), [weights, values]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
