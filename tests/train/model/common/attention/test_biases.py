"""Factors and offsets as biases of any pairs, one pair at a time."""

import itertools

import pytest
import torch
from torch import Tensor

from tokenfree.train.model.common.attention import FactorBias, Heads, LayerBias, OffsetBias

HEADS, UNITS, RANK = 3, 7, 2

PAIRS = {
    "all": ((4, 1), (1, 5)),
    "one by one": ((6,), (6,)),
    "a row of them": ((1, 6), (1, 6)),
    "rows of queries": ((2, 6), (1, 6)),
    "blocks": ((2, 3, 4, 1), (2, 3, 1, 5)),
    "a block of one query": ((2, 3, 1, 1), (2, 3, 1, 5)),
    "one block": ((1, 1, 4, 1), (1, 1, 1, 5)),
    "one key for each": ((2, 1, 4, 1), (2, 1, 4, 1)),
    "keys in rows": ((2, 1), (1, 3)),
    "different keys for each": ((1, 4, 1), (1, 4, 5)),
}


def made(kind: str, shared: bool) -> tuple[LayerBias, Tensor]:
    """A bias, and all its values [H, U, U]."""
    torch.manual_seed(0)
    heads = 1 if shared else HEADS
    if kind == "factors":
        q, k = torch.randn(heads, UNITS, RANK), torch.randn(heads, UNITS, RANK)
        values = [
            [[(q[h, i] * k[h, j]).sum() for j in range(UNITS)] for i in range(UNITS)] for h in range(heads)
        ]
        return FactorBias(q, k, HEADS), torch.tensor(values).expand(HEADS, -1, -1)
    by_offset = torch.randn(heads, 2 * UNITS - 1)
    values = [
        [[by_offset[h, j - i + UNITS - 1] for j in range(UNITS)] for i in range(UNITS)] for h in range(heads)
    ]
    return OffsetBias(by_offset, HEADS), torch.tensor(values).expand(HEADS, -1, -1)


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["factors", "offsets"])
def test_of_some_pairs(kind: str, shared: bool, pairs: str) -> None:
    bias, values = made(kind, shared)
    queries, keys = (torch.randint(UNITS, shape) for shape in PAIRS[pairs])
    for heads in (slice(None), slice(1, 3), slice(0, 1)):
        found = bias(heads, queries, keys)
        torch.testing.assert_close(found, values[heads][:, queries, keys])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["factors", "offsets"])
def test_of_all_pairs(kind: str, shared: bool) -> None:
    bias, values = made(kind, shared)
    for heads in (slice(None), slice(1, 3), slice(0, 1)):
        torch.testing.assert_close(bias.dense(heads), values[heads])


def test_gradient_of_offsets() -> None:
    """The sum along each diagonal."""
    by_offset = torch.randn(HEADS, 2 * UNITS - 1, requires_grad=True)
    weights = torch.randn(HEADS, UNITS, UNITS)
    (OffsetBias(by_offset, HEADS).dense(slice(None)) * weights).sum().backward()
    expected = torch.zeros_like(by_offset)
    for h, i, j in itertools.product(range(HEADS), range(UNITS), range(UNITS)):
        expected[h, j - i + UNITS - 1] += weights[h, i, j]
    torch.testing.assert_close(by_offset.grad, expected)


def test_a_code_of_its_own_leaves_queries_as_they_are() -> None:
    q, valid = torch.randn(1, HEADS, UNITS, RANK), torch.ones(1, UNITS, dtype=torch.bool)
    bias = LayerBias()
    heads = bias.bind(Heads(q, q, q, valid, q))
    assert heads.bias is bias
    assert torch.equal(heads.queries_BHQE, q)
