"""Dropout: rate, scale, seeds, and the same mask in both passes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.train.model.common import basic as dropout_module
from tokenfree.train.model.common.basic import STEPS, Dropout, average, dropout


@pytest.mark.parametrize("here", [True, False], ids=["ours", "pytorch's"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale(rate: float, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout_module, "draws_here", lambda x: here)
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
    # Four places share a draw.
    assert zero.view(-1, 4).mean(dim=0).tolist() == pytest.approx([0.25] * 4, abs=0.004)


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


@given(
    shape=st.lists(st.integers(1, 4), max_size=2),
    queries=st.integers(1, 6),
    keys=st.integers(1, 7),
    rate=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40)
def test_equals_a_mask_and_a_product(
    shape: list[int], queries: int, keys: int, rate: float, seed: int
) -> None:
    """Values and gradients of dropout, and of attention's average with it, by what autograd makes of the formulas."""
    torch.manual_seed(seed)
    weights = torch.rand(*shape, queries, keys, dtype=torch.float64) + 0.1
    values = torch.randn(*shape, keys, 3, dtype=torch.float64)
    inputs = [weights.requires_grad_(), values.requires_grad_()]
    torch.manual_seed(seed)
    dropped = dropout(weights, rate, training=True)
    torch.manual_seed(seed)
    averaged = average(weights, values, rate)
    threshold = min(max(round(rate * STEPS), 1), STEPS - 1)
    kept = weights * (dropped.detach() != 0) * (STEPS / (STEPS - threshold))
    for ours, wanted in ((dropped, kept), (averaged, kept @ values)):
        by = torch.randn_like(wanted)
        torch.testing.assert_close(ours, wanted, atol=1e-12, rtol=1e-12)
        for one, other in zip(
            torch.autograd.grad((ours * by).sum(), inputs, materialize_grads=True, allow_unused=True),
            torch.autograd.grad(
                (wanted * by).sum(), inputs, materialize_grads=True, allow_unused=True, retain_graph=True
            ),
            strict=True,
        ):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_kernels_under_compilation_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dropout_module.draws_here(torch.ones(1))
    assert not dropout_module.draws_here(torch.ones(1, device="meta"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not dropout_module.draws_here(torch.ones(1))


def test_no_rate_drops_everything() -> None:
    """A rate that is rounded to 1 leaves one value in 65,536, and no infinite factor."""
    torch.manual_seed(0)
    dropped = dropout(torch.ones(1_000_000), 1 - 1e-7, training=True)
    assert 0 < (dropped > 0).sum() < 50
    assert dropped.max() == STEPS
