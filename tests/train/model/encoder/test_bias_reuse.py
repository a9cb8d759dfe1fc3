"""What the stack keeps of biases in a forward pass: values that layers share, computed once."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tokenfree.core.settings import build
from tokenfree.train.model.common.attention import (
    ALL_HEADS,
    Heads,
    LayerBias,
    OffsetBias,
    SharedBias,
    SumBias,
    shared,
    sums,
)
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Trunk

UNITS = 6


class Counted(LayerBias):
    """A bias of ones that counts how often all of it is asked for."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.ones(2, *torch.broadcast_shapes(queries.shape, keys.shape))[heads]

    def dense(self, heads: slice) -> Tensor:
        self.times += 1
        return torch.ones(2, UNITS, UNITS)[heads]


def offsets() -> OffsetBias:
    return OffsetBias(torch.randn(2, 2 * UNITS - 1), 2)


def test_what_all_layers_share_is_computed_once() -> None:
    one = Counted()
    first, second = shared([one, one])
    assert first is second
    assert first.dense(ALL_HEADS) is second.dense(ALL_HEADS)
    assert one.times == 1
    assert first.dense(slice(1, 2)).shape == (1, UNITS, UNITS)


def test_sums_of_what_is_shared_and_what_is_not() -> None:
    one, other, own = Counted(), Counted(), [offsets(), offsets()]
    for some in (sums(shared([one, one]), own), sums(own, shared([one, one]))):
        one.times = 0
        for bias, alone in zip(own, some, strict=True):
            assert torch.equal(alone.dense(ALL_HEADS), 1 + bias.dense(ALL_HEADS))
        assert one.times == 1
    first, second = sums(shared([one, one]), shared([other, other]))
    assert first is second


def test_uncached_is_the_same_bias_with_nothing_computed() -> None:
    """A layer that is computed a second time must do all that it did the first time."""
    one, other = Counted(), Counted()
    whole = SharedBias(SumBias(SharedBias(one), SharedBias(other)))
    wanted = whole.dense(ALL_HEADS)
    assert (one.times, other.times) == (1, 1)
    again = whole.uncached()
    assert torch.equal(again.dense(ALL_HEADS), wanted)
    assert torch.equal(again.dense(ALL_HEADS), wanted)
    assert (one.times, other.times) == (2, 2)


@pytest.mark.parametrize("code", ["shaw", {"name": "diet_abs", "scale": "width"}])
@pytest.mark.parametrize("segments", ["none", "per_head"])
def test_bias_and_heads_are_bound_by_the_layer_and_by_nobody_else(code: Any, segments: str) -> None:
    """A code that reads or scales queries does it once, whatever the stack keeps of it; the core gets what is bound."""
    torch.manual_seed(0)
    trunk = Trunk(
        build(TrunkConfig, {"heads": 2, "layers": 2, "positions": code, "segments": segments}, source="test"),
        Dimensions(8, 2, 8, 0.0, "gelu"),
    )
    x, valid = torch.randn(2, UNITS, 8), torch.ones(2, UNITS, dtype=torch.bool)
    layer: Any = trunk.layers[0]
    bias: Any = trunk._biases(x, valid, None)[0]
    seen: list[Heads] = []
    layer.core.register_forward_pre_hook(lambda core, arguments: seen.append(arguments[0]))
    layer(x, valid, bias)
    queries = layer.query(x).unflatten(-1, (2, 4)).transpose(1, 2)
    factor = 1.0 if code == "shaw" else 2**-0.5
    torch.testing.assert_close(seen[0].queries_BHQE, queries * factor)
    assert seen[0].bias is not None
    assert (seen[0].bias is bias) == (code != "shaw")
    if code == "shaw":
        of_queries = (queries / 2) @ trunk.positions.keys_LHOE[0].transpose(-2, -1)
        index = (torch.arange(UNITS) - torch.arange(UNITS)[:, None] + 128).expand(2, 2, -1, -1)
        torch.testing.assert_close(seen[0].bias.dense(ALL_HEADS), of_queries.gather(3, index))
