"""Attention in parts, where PyTorch's fused kernel is slow: the same numbers, and only there."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.common import attention
from tokenfree.train.model.common.attention import FEW_KEYS, hide


def attended(keys: int, dtype: torch.dtype) -> list[Tensor]:
    """What two heads see of `keys` units of which the last is hidden, and the gradients."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, keys, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3))
    hidden = hide((torch.arange(keys) < keys - 1)[None, None, None], dtype)
    output = FullAttention(0.0).train().attend(q, k, v, hidden)
    return [output, *torch.autograd.grad(output.float().square().sum(), (q, k, v))]


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The keys of each call of the fused kernel."""
    kernel, calls = F.scaled_dot_product_attention, list[int]()

    def counted(q: Tensor, k: Tensor, *more: Any) -> Tensor:
        calls.append(k.shape[-2])
        return kernel(q, k, *more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    return calls


def test_the_parts_give_the_same(monkeypatch: pytest.MonkeyPatch, fused: list[int]) -> None:
    in_parts = attended(20, torch.bfloat16)
    assert fused == []
    monkeypatch.setattr(attention, "FEW_KEYS", 0)
    by_kernel = attended(20, torch.bfloat16)
    assert fused == [20]
    for ours, theirs, exact in zip(in_parts, by_kernel, attended(20, torch.float32), strict=True):
        torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.05)
        torch.testing.assert_close(ours.float(), exact, atol=0.05, rtol=0.05)


def test_what_is_hidden_has_no_gradient() -> None:
    _, _, of_keys, of_values = attended(20, torch.bfloat16)
    assert not of_keys[:, :, -1].any()
    assert not of_values[:, :, -1].any()
    assert of_values[:, :, :-1].all()


def test_the_kernel_stays_where_it_is_sooner(fused: list[int]) -> None:
    attended(20, torch.float32)
    attended(FEW_KEYS + 1, torch.bfloat16)
    with torch.no_grad():
        x, hidden = (torch.zeros(1, 1, size, 9, dtype=torch.bfloat16) for size in (9, 1))
        FullAttention(0.0).attend(x, x, x, hidden)
    assert fused == [20, FEW_KEYS + 1, 9]
