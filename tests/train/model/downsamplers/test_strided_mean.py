"""Mean and attention pooling in the place of the convolution, against loops in double precision."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tokenfree.train.model.common.basic import LAYER_NORM_EPSILON, Dimensions
from tokenfree.train.model.downsamplers import strided_attention, strided_conv, strided_mean

RATE, WIDTH, NARROW, CHARACTERS = 3, 8, 4, 14


def normalised(x: Tensor) -> Tensor:
    return (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + LAYER_NORM_EPSILON)


@pytest.fixture(params=[WIDTH, NARROW])
def dimensions(request: pytest.FixtureRequest) -> Dimensions:
    """Characters as wide as units, and narrower ones."""
    torch.manual_seed(0)
    return Dimensions(WIDTH, 2, 16, 0.0, "gelu_tanh", character_width=request.param)


@torch.no_grad()
def test_mean(dimensions: Dimensions) -> None:
    down = strided_mean.Config(rate=RATE, layers=0).build(dimensions).double()
    x = torch.randn(1, CHARACTERS, dimensions.character_width, dtype=torch.double)
    found = down(x, torch.ones(1, CHARACTERS, dtype=torch.bool)).units_BUD[0]
    assert len(found) == CHARACTERS // RATE
    for unit, vector in enumerate(found):
        group = x[0, :1] if unit == 0 else x[0, (unit - 1) * RATE : unit * RATE]
        torch.testing.assert_close(vector, normalised(down.widen(sum(group) / len(group))))


@torch.no_grad()
def test_attention(dimensions: Dimensions) -> None:
    down = strided_attention.Config(rate=RATE, layers=0).build(dimensions).double()
    down.query.weight.mul_(50)  # so that the weights of a group differ
    narrow = dimensions.character_width
    x = torch.randn(1, CHARACTERS, narrow, dtype=torch.double)
    found = down(x, torch.ones(1, CHARACTERS, dtype=torch.bool)).units_BUD[0]
    assert len(found) == CHARACTERS // RATE
    torch.testing.assert_close(found[0], normalised(down.widen(x[0, 0])))
    for unit in range(1, len(found)):
        group = x[0, (unit - 1) * RATE : unit * RATE]
        scores = [
            math.exp(float(down.query.weight[0] @ (down.key.weight @ character)) / math.sqrt(narrow))
            for character in group
        ]
        assert max(scores) > 1.5 * min(scores)
        mixed = sum(
            score / sum(scores) * (down.value.weight @ character)
            for score, character in zip(scores, group, strict=True)
        )
        torch.testing.assert_close(found[unit], normalised(down.widen(mixed)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", [strided_mean, strided_attention])
def test_all_but_the_pooling_is_as_with_the_convolution(variant: Any, dimensions: Dimensions) -> None:
    """Local layers, masks and the units of characters."""
    options = {"rate": RATE, "block": 4, "align_mask": True}
    downs = [part.Config(**options).build(dimensions) for part in (variant, strided_conv)]
    downs[0].local.load_state_dict(downs[1].local.state_dict())
    x = torch.randn(2, CHARACTERS, dimensions.character_width)
    mask = torch.arange(CHARACTERS) < torch.tensor([[14], [7]])
    one, other = (down(x, mask) for down in downs)
    assert torch.equal(one.valid_BU, other.valid_BU)
    assert one.valid_BU[1].tolist() == [True, True, True, True]
    assert torch.equal(one.characters_BCD, other.characters_BCD)
    assert downs[0].costs(CHARACTERS)[0].name == "local layer"
    assert sum(cost.parameters for cost in downs[0].costs(CHARACTERS)) == sum(
        p.numel() for p in downs[0].parameters()
    )


def test_costs(dimensions: Dimensions) -> None:
    """Four units: keys and values of twelve characters and two products with each; CLS and means are only widened."""
    narrow = dimensions.character_width
    mean, attention = (
        part.Config(rate=RATE, layers=0).build(dimensions).costs(CHARACTERS)[1]
        for part in (strided_mean, strided_attention)
    )
    widened = 0 if narrow == WIDTH else 4 * narrow * WIDTH
    assert mean[1::2] == ((4, WIDTH), widened)
    assert attention[1::2] == ((4, WIDTH), 12 * (2 * narrow * narrow + 2 * narrow) + widened)
